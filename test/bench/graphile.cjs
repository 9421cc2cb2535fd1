// graphile-worker as a peer of the benches: its schema, or a worker whose tasks do nothing, or call a provider.
//
//     node graphile.cjs schema|work [BATCH [URL]]      PGHOST and the like say where; NODE_PATH has the package

const { run, runMigrations, Logger } = require("graphile-worker");
const { Pool } = require("pg");

const [what, batch = "10", url] = process.argv.slice(2);
const pool = new Pool({ max: Number(batch) + 2 });
pool.on("error", () => {});

// Calls a provider and keeps its answer, and a message that follows from it, in one transaction.
async function call({ id, prompt }, helpers) {
  const reply = await fetch(`${url}/chat/completions`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model: "stand-in", messages: [{ role: "user", content: prompt }] }),
  });
  if (!reply.ok) throw new Error(`status ${reply.status}`);
  const answer = (await reply.json()).choices[0].message.content;
  await helpers.withPgClient(async (client) => {
    await client.query("BEGIN");
    await client.query("INSERT INTO peer.answer (id, text) VALUES ($1, $2)", [id, answer]);
    await client.query("INSERT INTO peer.message (topic, id) VALUES ('answers', $1)", [id]);
    await client.query("COMMIT");
  });
}

async function main() {
  if (what === "schema") {
    await runMigrations({ pgPool: pool });
    await pool.end();
    return;
  }
  const runner = await run({
    pgPool: pool,
    taskList: { bench: async () => {}, call },
    preset: {
      worker: { concurrentJobs: Number(batch), pollInterval: 100, localQueue: { size: Number(batch) }, completeJobBatchDelay: 1 },
    },
    logger: new Logger(() => () => {}),
  });
  await runner.promise;
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
