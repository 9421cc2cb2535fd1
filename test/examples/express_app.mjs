// An Express service that accepts summarisation jobs: the Idempotency-Key protocol is llmq.http_submit.
//
//     node express_app.mjs [PORT]       PGHOST, PGDATABASE and the like say which database

import express from 'express'
import pg from 'pg'

const pool = new pg.Pool()
const app = express()

// In production: who was authenticated.
const tenantOf = request => request.get('X-Tenant-Id')

// A body that is not JSON is left to llmq, which refuses null.
function parse(text) {
  try { return JSON.stringify(JSON.parse(text)) } catch { return null }
}

app.post('/v1/summaries', express.text({ type: () => true, limit: '1mb' }), async (request, response, next) => {
  try {
    const { rows: [answer] } = await pool.query(
      `SELECT status, headers, body FROM llmq.http_submit(
          tenant => $1, method => $2, path => $3, idempotency_key => $4, body => $5,
          outbox => '[{"topic": "summary.ready"}]')`,
      [tenantOf(request), request.method, request.path, request.get('Idempotency-Key'), parse(request.body)])
    response.writeHead(answer.status, answer.headers).end(JSON.stringify(answer.body))
  } catch (error) { next(error) }
})

app.get('/v1/summaries/:job', async (request, response, next) => {
  try {
    const { rows: [job] } = await pool.query(
      'SELECT state, text FROM llmq.job_status WHERE job_id = $1 AND tenant = $2', [request.params.job, tenantOf(request)])
    if (job) response.json({ status: job.state, summary: job.text })
    else response.status(404).json({ title: 'Not Found', status: 404 })
  } catch (error) { next(error) }
})

// What llmq never gets to see: text that PostgreSQL cannot take, like U+0000.
app.use((error, request, response, next) => {
  if (!/^22/.test(error.code)) return next(error)
  response.writeHead(400, { 'Content-Type': 'application/problem+json' })
    .end(JSON.stringify({ type: 'about:blank', title: 'Bad Request', status: 400, detail: error.message }))
})

const server = app.listen(process.argv[2] ?? 3000, '127.0.0.1', () => console.log(`listening on ${server.address().port}`))
