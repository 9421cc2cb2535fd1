// A receiver of mails, made of the packages smtp-server and mailparser: logs one line of JSON for
// each mail that it has taken.
//
//     node mail.cjs --port-file FILE --log FILE [--auth USER:PASSWORD] [--key FILE --cert FILE [--secure true]]
//
// What it does with a recipient is told by the name: refuse* 550 for ever; grey* 451 at first, then
// taken; busy* 451 for ever.  A subject "die" has it close the connection when the mail is whole,
// logged and not acknowledged; "reject" answers 554 to a whole mail.  With --auth nobody sends without it; with --key STARTTLS is offered, with
// --secure TLS is there from the start.
'use strict';

const fs = require('fs');
const { SMTPServer } = require('smtp-server');
const { simpleParser } = require('mailparser');

const options = {};
for (let i = 2; i < process.argv.length; i += 2) options[process.argv[i].slice(2)] = process.argv[i + 1];
const log = fs.openSync(options.log, 'a');
const seen = new Set();

function refuse(code, text) {
	return Object.assign(new Error(text), { responseCode: code });
}

function judge(address, session, callback) {
	const name = address.address;
	if (/^refuse/.test(name)) callback(refuse(550, 'no such mailbox'));
	else if (/^busy/.test(name)) callback(refuse(451, 'try again later'));
	else if (/^grey/.test(name) && !seen.has(name)) {
		seen.add(name);
		callback(refuse(451, 'greylisted'));
	} else callback();
}

async function take(stream, session, callback) {
	const mail = await simpleParser(stream);
	fs.writeSync(log, JSON.stringify({
		from: session.envelope.mailFrom.address,
		recipients: session.envelope.rcptTo.map((to) => to.address),
		to: mail.to?.text, cc: mail.cc?.text, subject: mail.subject, text: mail.text,
		message_id: mail.messageId, headers: Object.fromEntries(mail.headerLines.map(({ key, line }) => [key, line])),
		user: session.user, secure: session.secure,
	}) + '\n');
	if (mail.subject === 'die') server.connections.forEach((connection) => connection._socket.destroy());
	else if (mail.subject === 'reject') callback(refuse(554, 'not wanted here'));
	else callback();
}

const server = new SMTPServer({
	key: options.key && fs.readFileSync(options.key),
	cert: options.cert && fs.readFileSync(options.cert),
	secure: options.secure === 'true',
	authOptional: !options.auth,
	hideSTARTTLS: !options.key,
	disableReverseLookup: true,
	onAuth: ({ username, password }, session, callback) =>
		(`${username}:${password}` === options.auth ? callback(null, { user: username }) : callback(refuse(535, 'wrong password'))),
	onRcptTo: judge,
	onData: take,
	logger: false,
});
server.on('error', () => {});
server.listen(0, '127.0.0.1', () => {
	fs.writeFileSync(options['port-file'] + '.new', `${server.server.address().port}\n`);
	fs.renameSync(options['port-file'] + '.new', options['port-file']);
});
process.on('SIGTERM', () => process.exit(0));
