// The openai SDK over llmq: its requests become jobs, and the provider's own answer comes back to it.
//
//     node openai.mjs KEY QUESTION       PGHOST, PGDATABASE and the like say which database

import OpenAI from 'openai'
import pg from 'pg'

const pool = new pg.Pool()

// What the SDK calls instead of the network.  A request object of chat.completions is a job's model,
// messages and params; the key comes with the request, and the same key is the same answer.
async function viaQueue(url, { body, headers }) {
  const { model, messages, stream, ...params } = JSON.parse(body)
  if (stream) throw new Error('an answer is kept when it is whole: leave stream out')
  const { rows: [{ job_id: job }] } = await pool.query(
    'SELECT job_id FROM llmq.submit(model => $1, messages => $2, params => $3, idempotency_key => $4)',
    [model, JSON.stringify(messages), JSON.stringify(params), new Headers(headers).get('Idempotency-Key')])
  const { rows: [{ status }] } = await pool.query(`CALL llmq.wait($1, '10 min')`, [job])
  if (status.state !== 'succeeded') {
    return Response.json({ error: { code: status.error_class, message: status.error_message } }, { status: 502 })
  }
  const { rows: [{ response }] } = await pool.query('SELECT response FROM llmq.result WHERE job_id = $1', [job])
  return Response.json(response)
}

// Retries, time limits and the secret are llmq's.
const openai = new OpenAI({ apiKey: 'in llmq.secrets_directory', fetch: viaQueue, maxRetries: 0, timeout: 600_000 })

const [key, question] = process.argv.slice(2)
const completion = await openai.chat.completions.create({
  model: 'gpt-4o-mini',
  temperature: 0.2,
  messages: [{ role: 'system', content: 'You answer in one sentence.' }, { role: 'user', content: question }]
}, { headers: { 'Idempotency-Key': key } })
console.log(completion.choices[0].message.content)
await pool.end()
