// A receiver of webhooks: verifies each with the package standardwebhooks, answers as it is told,
// and logs one line of JSON for each request that it has read.
//
//     node webhook.cjs --port-file FILE --log FILE [--secret SECRET]...
//
// A path answers 200, unless an answer was queued for it: POST /_control/script takes
// {path, answers: [{status, headers, body, hold: true, drop: true}]}, each good for one request; the
// last one stays if "stay" is true.  hold: never answers; drop: closes the connection instead.
'use strict';

const fs = require('fs');
const http = require('http');
const { Webhook } = require('standardwebhooks');

const options = { secret: [] };
for (let i = 2; i < process.argv.length; i += 2) {
	const name = process.argv[i].slice(2);
	if (name === 'secret') options.secret.push(process.argv[i + 1]);
	else options[name] = process.argv[i + 1];
}
const log = fs.openSync(options.log, 'a');
const scripts = new Map();
let inFlight = 0;

// The places of the secrets, from 0, that the package takes the signature for.
function verifiers(body, headers) {
	return options.secret.flatMap((secret, place) => {
		try {
			new Webhook(secret).verify(body, headers);
			return [place];
		} catch {
			return [];
		}
	});
}

function nextAnswer(path) {
	const script = scripts.get(path);
	if (!script || script.answers.length === 0) return { status: 200 };
	return script.stay && script.answers.length === 1 ? script.answers[0] : script.answers.shift();
}

function take(request, response, body) {
	if (request.url === '/_control/script') {
		const script = JSON.parse(body);
		scripts.set(script.path, script);
		response.end('{}');
		return;
	}
	const answer = nextAnswer(request.url);
	fs.writeSync(log, JSON.stringify({
		path: request.url, method: request.method, headers: request.headers, body, in_flight: inFlight,
		verified: verifiers(body, request.headers), status: answer.status,
	}) + '\n');
	if (answer.drop) request.socket.destroy();
	else if (!answer.hold) {
		response.writeHead(answer.status, answer.headers ?? {});
		response.end(answer.body ?? '');
	}
}

const server = http.createServer((request, response) => {
	const parts = [];
	inFlight++;
	response.on('close', () => { inFlight--; });
	request.on('data', (part) => parts.push(part));
	request.on('end', () => take(request, response, Buffer.concat(parts).toString('utf8')));
});
server.keepAliveTimeout = 30000;
server.listen(0, '127.0.0.1', () => {
	fs.writeFileSync(options['port-file'] + '.new', `${server.address().port}\n`);
	fs.renameSync(options['port-file'] + '.new', options['port-file']);
});
process.on('SIGTERM', () => process.exit(0));
