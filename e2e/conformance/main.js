// Drives a real gateway. Usage: node main.js ROOT CONFIG.json, where CONFIG has the
// files of the leases and identities; it prints a line for each thing that holds.
import './node20.js'
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { createLibp2p } from 'libp2p'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { tcp } from '@libp2p/tcp'
import { Caller, OutcomeUnknownError, newOperationID, reading } from './client.js'
import { frame } from './codec.js'
import { readIdentity, readLease } from './lease.js'
import { checkVectors } from './vectors.js'

const [root, configFile] = process.argv.slice(2)
const config = JSON.parse(readFileSync(configFile, 'utf8'))
const leaseOf = (file) => readLease(readFileSync(file, 'utf8'))
const identityOf = (file) => readIdentity(readFileSync(file, 'utf8'))
const fx = { connector: 'fx', version: '1.0.0' }
const callers = []

async function caller (transport, identity = config.caller, options = {}) {
  const transports = [transport === 'tcp' ? tcp() : (await import('@chainsafe/libp2p-quic')).quic()]
  const c = await Caller.create({ identity: identityOf(identity), transports, ...options })
  callers.push(c)
  return c
}

function over (lease, transport) {
  const part = transport === 'tcp' ? '/tcp/' : '/quic-v1'
  return { ...lease, addresses: lease.addresses.filter((a) => a.includes(part)) }
}

/** What fx print prints. */
function pattern (n) {
  const line = Buffer.from('0123456789abcdefghijklmnopqrstuvwxyz\n')
  return Buffer.alloc(Math.ceil(n / line.length) * line.length, line).subarray(0, n)
}

function collector () {
  const parts = []
  return { write: (b) => { parts.push(Buffer.from(b)) }, get bytes () { return Buffer.concat(parts) } }
}

async function * pieces (bytes, size = 100000) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

/** Runs a command and returns its end with both outputs. */
async function all (c, lease, command, args = [], more = {}) {
  const out = collector()
  const err = collector()
  const operation = c.run(lease, { ...fx, command, arguments: args, stdout: out.write, stderr: err.write, ...more })
  const exit = await operation.exit()
  return { exit, out: out.bytes, err: err.bytes, links: operation.links }
}

/** How many commands the Connector started. */
function starts () {
  try {
    return readFileSync(config.starts, 'utf8').split('\n').length - 1
  } catch (err) {
    if (err.code === 'ENOENT') return 0
    throw err
  }
}

const refused = (code) => (err) => err.name === 'RefusedError' && err.code === code

async function holds (what, check) {
  const began = Date.now()
  try {
    await check()
  } catch (err) {
    throw new Error(what, { cause: err })
  }
  console.log(`ok ${what} (${Date.now() - began} ms)`)
}

/** A way to the gateway that can be cut. */
async function proxy (lease) {
  const [, host, port] = lease.addresses[0].match(/^\/ip4\/([\d.]+)\/tcp\/(\d+)/)
  const sockets = new Set()
  let passed = 0
  let cutAt = Infinity
  const p = {
    cutAfter: (n) => { cutAt = passed + n },
    cut: () => sockets.forEach((s) => s.destroy()),
    close: () => { server.close(); p.cut() },
    cuts: 0
  }
  const server = createServer((near) => {
    const far = connect(Number(port), host)
    for (const [from, to] of [[near, far], [far, near]]) {
      sockets.add(from)
      from.on('data', (b) => {
        if (!to.write(b)) from.pause()
        if ((passed += b.length) >= cutAt) {
          cutAt = Infinity
          p.cuts++
          p.cut()
        }
      })
      to.on('drain', () => from.resume())
      from.on('error', () => {})
      from.on('close', () => { sockets.delete(from); to.destroy() })
    }
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  p.lease = { ...lease, addresses: [`/ip4/127.0.0.1/tcp/${server.address().port}/p2p/${lease.gateway}`] }
  return p
}

async function commands (transport, lease) {
  const c = await caller(transport)
  await holds(`${transport}: the catalogue says what may run, and how it is typed`, async () => {
    const entries = await c.catalog(lease)
    const exit = entries.find((e) => e.command === 'exit')
    assert.deepEqual(entries.map((e) => e.command).sort(), config.commands)
    assert.deepEqual(exit.inputSchema['x-lend-arguments'], ['exit'])
    assert.deepEqual(exit.inputSchema.properties.status['x-lend-place'], { position: 1 })
    assert.equal(entries.find((e) => e.command === 'cat').stdin, true)
  })
  await holds(`${transport}: bytes, exit statuses and signals are the command's`, async () => {
    assert.equal((await all(c, lease, 'exit', ['0'])).exit.status, 0)
    assert.equal((await all(c, lease, 'exit', ['37'])).exit.status, 37)
    assert.equal((await all(c, lease, 'die', ['9'])).exit.signal, 'SIGKILL')
    assert.deepEqual((await all(c, lease, 'print', ['3000000'])).out, pattern(3000000))
    const { out, err } = await all(c, lease, 'errprint', ['70000'])
    assert.deepEqual([out.length, err], [0, pattern(70000)])
    assert.equal((await all(c, lease, 'args', ['--word', 'one', 'two'])).out.toString(), '["--word=one","two"]\n')
  })
  await holds(`${transport}: it streams both ways at once`, async () => {
    const answers = collector()
    let say
    const lines = ['one\n', 'two\n', 'three\n']
    async function * talk () { // each line waits for the answer to the one before
      for (const line of lines) {
        const answered = new Promise((resolve) => { say = resolve })
        yield Buffer.from(line)
        await answered
      }
    }
    const stdout = (b) => { answers.write(b); if (b.at(-1) === 10) say() }
    await c.run(lease, { ...fx, command: 'lines', stdin: talk(), stdout }).exit()
    assert.equal(answers.bytes.toString(), 'ONE\nTWO\nTHREE\n')
    const bytes = pattern(4000000)
    assert.deepEqual((await all(c, lease, 'cat', [], { stdin: pieces(bytes) })).out, bytes)
    assert.equal((await all(c, lease, 'cat', [], { stdin: pieces(Buffer.alloc(0)) })).out.length, 0)
  })
  await holds(`${transport}: who has enough ends the command, and a command that has enough leaves the input`, async () => {
    const exit = await c.run(lease, { ...fx, command: 'endless', stdout: () => false }).exit()
    assert.ok(exit.signal === 'SIGPIPE' || exit.status !== 0, JSON.stringify(exit.status))
    async function * endless () { for (;;) yield pattern(60000) }
    assert.equal((await all(c, lease, 'unread', [], { stdin: endless() })).exit.status, 3)
  })
  await holds(`${transport}: it cancels, asks, and cancels what has not begun`, async () => {
    const stop = new AbortController()
    const operation = c.run(lease, { ...fx, command: 'cat', stdin: until(stop.signal), signal: stop.signal, stdout: () => stop.abort() })
    const exit = await operation.exit()
    assert.equal(exit.code, 'CANCELLED')
    const { state, exit: told } = await c.status(lease, operation.id)
    assert.deepEqual([state, told.code, told.stdout], [3, 603, exit.stdout])
    const id = newOperationID()
    assert.equal(await c.cancel(lease, id), 1)
    await assert.rejects(all(c, lease, 'exit', ['0'], { operation: id }), (err) => err.name === 'RefusedError')
  })
  await holds(`${transport}: refusals say which, and nothing runs`, async () => {
    const before = starts()
    await assert.rejects(all(c, lease, 'exit', ['300']), refused('ARGUMENT_REJECTED'))
    await assert.rejects(all(c, lease, 'hidden'), refused('COMMAND_UNKNOWN'))
    await assert.rejects(all(c, lease, 'exit', ['0'], { connector: 'other' }), refused('CONNECTOR_UNKNOWN'))
    await assert.rejects(all(c, lease, 'exit', ['0'], { version: '9' }), refused('VERSION_UNKNOWN'))
    await assert.rejects(all(c, lease, 'exit', ['0'], { stdin: pieces(Buffer.from('x')) }), refused('INPUT_REJECTED'))
    await assert.rejects(c.status(lease, newOperationID()), refused('OPERATION_UNKNOWN'))
    const other = await caller(transport, config.other)
    const stolen = { ...lease, holder: other.peerID }
    await assert.rejects(other.catalog(stolen), refused('DENIED'))
    await assert.rejects(all(other, stolen, 'exit', ['0']), refused('DENIED'))
    const stranger = await caller(transport, config.stranger, { patienceMs: 100 })
    await assert.rejects(all(stranger, { ...lease, holder: stranger.peerID }, 'exit', ['0']))
    assert.equal(starts(), before)
  })
  await holds(`${transport}: what breaks the protocol is refused`, async () => {
    const stream = await c.stream(lease, '/lend/run/1.0.0')
    stream.send(frame('data', { offset: 0n, payload: Buffer.from('x') }))
    const got = collector()
    try {
      for await (const b of reading(stream)) got.write(b)
    } catch {} // reset
    assert.ok(got.bytes.length === 0 || got.bytes.includes(Buffer.from([0x08, 0xbc, 0x05])), got.bytes.toString('hex')) // code 700
  })
  await holds(`${transport}: the same operation runs once`, async () => {
    const operation = newOperationID()
    const once = { operation }
    const before = starts()
    assert.equal((await all(c, lease, 'exit', ['5'], once)).exit.status, 5)
    assert.equal((await all(c, lease, 'exit', ['5'], once)).exit.status, 5)
    await assert.rejects(all(c, lease, 'exit', ['6'], once), refused('OPERATION_CONFLICT'))
    assert.equal(starts(), before + 1)
  })
  await holds(`${transport}: connections that are dropped lose no byte`, async () => {
    const size = 20000000
    const out = collector()
    let got = 0
    let drops = 0
    const stdout = (b) => {
      out.write(b)
      if ((got += b.length) > (drops + 1) * 5000000) {
        drops++
        c.drop()
      }
    }
    const { exit, links } = await all(c, lease, 'print', [String(size)], { stdout })
    assert.deepEqual(out.bytes, pattern(size))
    assert.deepEqual([exit.status, links], [0, drops + 1])
    assert.ok(drops >= 3, String(drops))
  })
}

async function * until (signal) {
  yield Buffer.from('first')
  while (!signal.aborted) await pause(20)
  await new Promise(() => {}) // input that never ends
}

async function cuts (lease) {
  const way = await proxy(lease)
  const c = await caller('tcp')
  await holds('tcp: a link that is cut loses no byte of the output', async () => {
    way.cutAfter(3000000)
    const { out, links } = await all(c, way.lease, 'print', ['8000000'])
    assert.deepEqual(out, pattern(8000000))
    assert.deepEqual([way.cuts, links], [1, 2])
  })
  await holds('tcp: nor of the input', async () => {
    way.cutAfter(3000000)
    const bytes = pattern(8000000)
    const { out, links } = await all(c, way.lease, 'sum', [], { stdin: pieces(bytes) })
    assert.equal(out.toString(), `8000000 ${createHash('sha256').update(bytes).digest('hex')}\n`)
    assert.deepEqual([way.cuts, links], [2, 2])
  })
  await holds('tcp: nor both ways at once', async () => {
    way.cutAfter(5000000)
    const bytes = pattern(8000000)
    const { out } = await all(c, way.lease, 'cat', [], { stdin: pieces(bytes) })
    assert.deepEqual(out, bytes)
    assert.equal(way.cuts, 3)
  })
  await holds('tcp: a gateway that is gone for good is no success', async () => {
    const impatient = await caller('tcp', config.caller, { patienceMs: 500 })
    const stdout = () => way.close()
    await assert.rejects(all(impatient, way.lease, 'endless', [], { stdout }), (err) => err instanceof OutcomeUnknownError)
    await assert.rejects(all(impatient, way.lease, 'exit', ['0']), (err) => !(err instanceof OutcomeUnknownError)) // nothing was sent
  })
}

/** Gateways that do wrong: whatever they say, the caller reports no success. */
async function liars (lease) {
  const limits = {}
  const token = Buffer.alloc(16, 1)
  const accepted = { token, limits }
  const data = { stream: 1, offset: 0n, payload: Buffer.from('all is well\n') }
  const lies = {
    'closes without a word': [/without Exit/],
    'closes after Accepted': [/without Exit/, ['accepted', accepted]],
    'closes after its output': [/without Exit|DATA-3/, // when it is asked again it begins anew
      ['accepted', accepted], ['data', data]],
    'counts more than it sent': [/a part of the output is gone/, ['accepted', accepted], ['data', data], ['exit', { stdout: 99n }]],
    'counts less than it sent': [/END-2/, ['accepted', accepted], ['data', data], ['exit', { stdout: 3n }]],
    'ends before it accepts': [/STATE-1/, ['exit', {}]],
    'leaves output out': [/a part of the output is gone/, ['accepted', { ...accepted, attached: true, stdout: 12n }], ['exit', { stdout: 12n }]]
  }
  let script
  const gateway = await createLibp2p({
    privateKey: identityOf(config.other),
    addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()]
  })
  await gateway.handle('/lend/run/1.0.0', async (stream) => {
    for (const f of script) stream.send(frame(...f))
    await stream.close().catch(() => {})
  })
  const at = { ...lease, gateway: gateway.peerId.toString(), addresses: gateway.getMultiaddrs().map(String) }
  const c = await caller('tcp', config.caller, { patienceMs: 300 })
  const told = (err) => err ? `${err.message}\n${told(err.cause)}` : ''
  for (const [what, [why, ...frames]] of Object.entries(lies)) {
    await holds(`no success from a gateway that ${what}`, async () => {
      script = frames
      await assert.rejects(all(c, at, 'exit', ['0']), (err) => err instanceof OutcomeUnknownError && why.test(told(err)))
    })
  }
  await holds('what was said before a close is heard', async () => {
    script = [['accepted', accepted], ['data', data], ['exit', { stdout: 12n }]]
    const { exit, out } = await all(c, at, 'exit', ['0'])
    assert.deepEqual([exit.status, out.toString()], [0, 'all is well\n'])
  })
  await gateway.stop()
}

const count = checkVectors(root)
console.log(`ok ${count} vectors and frames of transcripts`)
const lease = leaseOf(config.lease)
for (const transport of config.transports) await commands(transport, over(lease, transport))
await cuts(over(lease, 'tcp'))
await liars(over(lease, 'tcp'))
for (const c of callers) await c.close()
console.log('all holds')
process.exit(0)
