// Submits jobs beside rows of one's own and waits for them, with node-postgres.  Prints what came of each.
//
//     node submit.mjs BODY...       PGHOST, PGDATABASE and the like say which database

import pg from 'pg'

// Writes a ticket and its job: both are committed, or neither is.
async function submit(client, body) {
  await client.query('BEGIN')
  try {
    const { rows: [ticket] } = await client.query('INSERT INTO ticket (body) VALUES ($1) RETURNING id', [body])
    const { rows: [job] } = await client.query(
      `SELECT job_id FROM llmq.submit(prompt => $1, idempotency_key => $2, queue => 'tickets')`,
      ['Summarise this ticket:\n\n' + body, `summary of ticket ${ticket.id}`])
    await client.query('UPDATE ticket SET summary_job = $1 WHERE id = $2', [job.job_id, ticket.id])
    await client.query('COMMIT')
    return job.job_id
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  }
}

// Waits for one job.  Not inside a transaction.
async function wait(client, job) {
  const { rows: [{ status }] } = await client.query(`CALL llmq.wait($1, '60 s')`, [job])
  return [status.state, status.text]
}

// Waits for many.  The table is the truth; a NOTIFY only says that it is time to look again.
async function waitForAll(client, jobs) {
  let ring = () => {}
  client.on('notification', () => ring())
  await client.query('LISTEN llmq_done') // before the first look, or the last job may be missed
  for (;;) {
    const heard = new Promise(resolve => { ring = resolve })
    const { rows } = await client.query(
      `SELECT job_id, state, text FROM llmq.job_status
       WHERE job_id = ANY ($1) AND finished_at IS NOT NULL`, [jobs])
    if (rows.length === jobs.length) return new Map(rows.map(row => [row.job_id, [row.state, row.text]]))
    let timer
    await Promise.race([heard, new Promise(resolve => { timer = setTimeout(resolve, 10000) })])
    clearTimeout(timer)
  }
}

const client = new pg.Client()
await client.connect()
const jobs = []
for (const body of process.argv.slice(2)) jobs.push(await submit(client, body))
console.log('one:', ...await wait(client, jobs[0]))
const answers = await waitForAll(client, jobs)
for (const job of jobs) console.log('all:', ...answers.get(job))
await client.end()
