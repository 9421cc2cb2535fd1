// graphile-worker as a peer of the queue bench: its schema, or a worker whose task does nothing.
//
//     node graphile.cjs schema|work      PGHOST and the like say where; NODE_PATH has the package

const { run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");

const pool = new Pool({ max: 12, options: "-c synchronous_commit=off" });
pool.on("error", () => {});

async function main() {
  if (process.argv[2] === "schema") {
    await runMigrations({ pgPool: pool });
    await pool.end();
    return;
  }
  // Batches of ten, as for the others.
  const runner = await run({
    pgPool: pool,
    taskList: { bench: async () => {} },
    preset: {
      worker: { concurrentJobs: 10, pollInterval: 100, localQueue: { size: 10 }, completeJobBatchDelay: 1 },
    },
    logger: new (require("graphile-worker").Logger)(() => () => {}),
  });
  await runner.promise;
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
