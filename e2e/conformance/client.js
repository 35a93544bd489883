// A caller of lend: it runs lent commands on a gateway, follows them over lost links, and
// never takes anything but an Exit with all its bytes for an end (docs/protocol.md §8).
import { randomBytes } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { createLibp2p } from 'libp2p'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { Violation, codes, delimited, encode, frame, parse } from './codec.js'
import { Lengths, Receiver, bounds } from './stream.js'

const run = '/lend/run/1.0.0'
const control = '/lend/control/1.0.0'
const catalog = '/lend/catalog/1.0.0'

/** The gateway did not do what was asked; nothing ran because of it. */
export class RefusedError extends Error {
  constructor ({ code, public: text, retryAfterMs }) {
    super(`refused: ${codes[code]?.name ?? code}: ${text}`)
    this.name = 'RefusedError'
    this.code = codes[code]?.name ?? String(code)
    this.retryAfterMs = Number(retryAfterMs)
  }
}

/** The operation may have run or not, or run to another end than is known. */
export class OutcomeUnknownError extends Error {
  constructor (why, cause) {
    super(`outcome unknown: ${why}`, { cause })
    this.name = 'OutcomeUnknownError'
  }
}

export const newOperationID = () => `js-${randomBytes(16).toString('hex')}`

export class Caller {
  #node
  #leases = new Map() // by gateway: the connection that is used

  static async create ({ identity, transports, patienceMs = 10000 }) {
    const caller = new Caller()
    caller.patienceMs = patienceMs
    caller.#node = await createLibp2p({
      privateKey: identity,
      transports,
      connectionEncrypters: [noise()],
      streamMuxers: [yamux()]
    })
    return caller
  }

  get peerID () { return this.#node.peerId.toString() }

  async close () { await this.#node.stop() }

  /** Closes the connections, as a lost link would. */
  drop () {
    for (const c of this.#leases.values()) c.abort(new Error('dropped'))
  }

  /** A stream for one protocol, on the connection that there is, or a new one. */
  async stream (lease, protocol) {
    if (lease.holder !== this.peerID) throw new Error(`the lease is for ${lease.holder}, this is ${this.peerID}`)
    if (lease.notAfter <= Date.now()) throw new Error('the lease has expired')
    const signal = AbortSignal.timeout(5000)
    let connection = this.#leases.get(lease.gateway)
    if (connection?.status !== 'open') {
      // The addresses end in /p2p/ and the gateway's ID: nobody else is spoken to.
      connection = await this.#node.dial(lease.addresses.map((a) => multiaddr(a)), { signal, force: true })
      this.#leases.set(lease.gateway, connection)
    }
    return connection.newStream(protocol, { signal })
  }

  /** Starts a command: see Operation. */
  run (lease, request) { return new Operation(this, lease, request) }

  /** What the lease may run now. */
  async catalog (lease) {
    const stream = await this.stream(lease, catalog)
    const entries = []
    for await (const part of this.#ask(stream, encode('CatalogRequest', { lease: lease.chain }), 'CatalogFrame', bounds.catalog)) {
      if (part.refused && entries.length === 0) throw new RefusedError(part.refused)
      if (part.entry && entries.length < 1024) entries.push({ ...part.entry, inputSchema: JSON.parse(Buffer.from(part.entry.inputSchema).toString()) })
      else if (part.end?.entries === entries.length) return entries
      else throw new Violation('CATALOG-2')
    }
    throw new Error('the catalogue has no end')
  }

  /** Cancels an operation, from any connection; returns its state (1 to 4). */
  async cancel (lease, operation, { graceMs = 0, withLease = true } = {}) {
    const { issuer, invocation } = lease
    return (await this.#control(lease, { cancel: { issuer, invocation, operation, graceMs, lease: withLease ? lease.chain : [] } })).cancel.state
  }

  /** Where an operation stands: {state, exit}. */
  async status (lease, operation) {
    const { issuer, invocation } = lease
    return (await this.#control(lease, { status: { issuer, invocation, operation } })).status
  }

  async #control (lease, request) {
    const stream = await this.stream(lease, control)
    for await (const reply of this.#ask(stream, encode('ControlRequest', request), 'ControlReply', bounds.answer)) {
      if (reply.refused) throw new RefusedError(reply.refused)
      if (!(Object.keys(request)[0] in reply)) throw new Violation('CONTROL-2')
      return reply
    }
    throw new Error('no reply')
  }

  async * #ask (stream, request, type, bound) {
    const lengths = new Lengths()
    try {
      stream.send(delimited(request))
      for await (const piece of reading(stream)) {
        lengths.append(piece)
        for (let body; (body = lengths.next(bound));) yield parse(type, body)
      }
    } finally {
      await end(stream)
    }
  }
}

/**
 * The bytes of a stream, until the other end closes it; an error if it is reset. The
 * stream's own iterator never ends if the close came before it was asked for: then a
 * caller would wait for ever for a gateway that has gone.
 */
export async function * reading (stream) {
  const most = 8 << 20 // what may be on the way to a reader that is slow
  const pieces = []
  let queued = 0
  let over = false
  let failed
  let wake = () => {}
  const ends = (event) => {
    over = true
    failed ??= event?.error
    wake()
  }
  const comes = ({ data }) => {
    pieces.push(data.subarray())
    if ((queued += data.byteLength) > most) stream.pause()
    wake()
  }
  const listeners = { message: comes, end: ends, close: ends }
  for (const [event, listener] of Object.entries(listeners)) stream.addEventListener(event, listener)
  const endedBefore = () => stream.remoteWriteStatus === 'closed' && stream.readBufferLength === 0 // what it holds is still to come
  try {
    for (;;) {
      const woken = new Promise((resolve) => { wake = resolve })
      if (pieces.length > 0) {
        const piece = pieces.shift()
        if ((queued -= piece.length) <= most && stream.readStatus === 'paused') stream.resume()
        yield piece
      } else if (over || endedBefore()) {
        if (failed) throw failed
        return
      } else await woken
    }
  } finally {
    for (const [event, listener] of Object.entries(listeners)) stream.removeEventListener(event, listener)
  }
}

/** Closes a stream, or resets it if the other end does not. */
async function end (stream) {
  try {
    await stream.close({ signal: AbortSignal.timeout(2000) })
  } catch (err) {
    stream.abort(err)
  }
}

/** An ignorable frame, with a random number (GREASE-3). */
function grease () {
  const random = randomBytes(24)
  return delimited(Buffer.concat([encodeTag(1024 + (random.readUInt16BE() % 1024)), Buffer.from([random.length]), random]))
}

function encodeTag (number) {
  const tag = number * 8 + 2
  return Buffer.from([(tag & 0x7f) | 0x80, tag >> 7])
}

/**
 * One operation. The request: connector, version, command, arguments (strings or bytes),
 * stdin (an async iterable of bytes, or nothing), stdout and stderr (functions that take
 * bytes; false or an error from one means that nobody reads that output any more),
 * operation (its ID, new unless given) and signal (an AbortSignal that cancels).
 */
export class Operation {
  #caller
  #lease
  #request
  #input
  #token // since Accepted
  #tried = false // a Start was sent
  #got = [0n, 0n, 0n] // bytes of each output that were taken
  #closed = [true, false, false] // outputs that nobody reads
  #hole = false
  links = 0 // streams that were opened

  constructor (caller, lease, request) {
    this.#caller = caller
    this.#lease = lease
    this.#request = { stdin: undefined, stdout: () => {}, stderr: () => {}, arguments: [], operation: newOperationID(), ...request }
    this.#input = request.stdin && new Input(request.stdin)
  }

  get id () { return this.#request.operation }

  /** Runs it to its end: the Exit. Throws RefusedError if nothing ran, OutcomeUnknownError if nobody knows. */
  async exit () {
    const cancel = () => { this.#caller.cancel(this.#lease, this.id).catch(() => {}) } // again at the next link
    this.#request.signal?.addEventListener('abort', cancel)
    let wait = 50
    let since = Date.now()
    try {
      for (;;) {
        const before = this.links
        try {
          const stream = await this.#caller.stream(this.#lease, run)
          this.links++
          if (this.#request.signal?.aborted) cancel()
          return await this.#follow(stream)
        } catch (err) {
          if (!(err instanceof Lost) && this.links > before) throw err
          if (!this.#tried) throw err // nothing was sent
          if (err.progress) since = Date.now()
          if (Date.now() - since > this.#caller.patienceMs) throw new OutcomeUnknownError('the link was lost', err)
          await pause(wait)
          wait = err.progress ? 50 : Math.min(2 * wait, 1000)
        }
      }
    } finally {
      this.#request.signal?.removeEventListener('abort', cancel)
    }
  }

  async #follow (stream) {
    const link = new Link(stream)
    const receiver = new Receiver('gateway')
    const first = !this.#tried
    this.#tried = true
    try {
      if (this.#token) {
        const { issuer, invocation } = this.#lease
        link.send('attach', { issuer, invocation, operation: this.id, token: this.#token, stdout: this.#got[1], stderr: this.#got[2] })
      } else {
        const { operation, connector, version, command } = this.#request
        const args = this.#request.arguments.map((a) => typeof a === 'string' ? Buffer.from(a) : a)
        link.send('start', { operation, lease: this.#lease.chain, connector, version, command, arguments: args, stdin: this.#input !== undefined })
        if (first && this.#input) this.#input.begin(link, 0n) // START-6
      }
      link.grease()
      const acks = setInterval(() => link.ack(this.#got, true), 1000)
      try {
        for await (const piece of reading(stream)) {
          receiver.append(piece)
          for (let f; (f = receiver.next());) {
            const done = await this.#take(link, f, first)
            if (done) return done
          }
        }
      } finally {
        clearInterval(acks)
        link.over()
      }
    } catch (err) {
      if (err instanceof RefusedError || err instanceof OutcomeUnknownError) throw err
      if (err instanceof Violation) {
        stream.abort(err) // FRAME-6: reset, and the outcome is unknown
        throw new OutcomeUnknownError('the gateway broke the protocol', err)
      }
      stream.abort(err)
      throw new Lost(err, link.progress)
    }
    // The gateway closed its end, and there was no Exit. That is never success.
    stream.abort(new Error('no Exit'))
    throw new Lost(new Error('the stream ended without Exit'), link.progress)
  }

  async #take (link, { name, value }, first) {
    switch (name) {
      case 'refused':
        await end(link.stream)
        // Of a Start that was sent before nothing is known, of an Attach still less.
        if (!first && value.retryAfterMs > 0n) {
          await pause(Number(value.retryAfterMs))
          throw new Lost(new RefusedError(value), false)
        }
        throw first ? new RefusedError(value) : new OutcomeUnknownError('refused when asked again', new RefusedError(value))
      case 'accepted':
        if (this.#token && value.token.length > 0 && !Buffer.from(value.token).equals(Buffer.from(this.#token))) throw new Violation('ACCEPT-3')
        this.#token ??= value.token
        for (const [i, at] of [[1, value.stdout], [2, value.stderr]]) {
          if (at < this.#got[i]) throw new Violation('DATA-3') // earlier than asked for
          if (at > this.#got[i] && !this.#closed[i]) this.#hole = true
          this.#got[i] = at
          if (this.#closed[i]) link.send('output-closed', { stream: i }) // it may not have arrived
        }
        if (this.#input && !link.began) this.#input.begin(link, value.stdin)
        break
      case 'data':
        await this.#output(link, value)
        break
      case 'ack':
        this.#input?.acked(value.stdin)
        link.progress = true
        break
      case 'stdin-closed':
        this.#input?.stop()
        break
      case 'exit':
        for (const [i, total] of [[1, value.stdout], [2, value.stderr]]) {
          if (!this.#closed[i] && (this.#got[i] !== total || this.#hole)) throw new OutcomeUnknownError('a part of the output is gone')
        }
        link.send('exit-ack')
        await end(link.stream)
        this.#input?.stop()
        return { ...value, code: codes[value.code]?.name ?? String(value.code) }
    }
  }

  async #output (link, { stream, payload }) {
    if (!this.#closed[stream]) {
      try {
        if (await this.#request[stream === 1 ? 'stdout' : 'stderr'](payload) === false) throw new Error('closed')
      } catch {
        this.#closed[stream] = true
        link.send('output-closed', { stream })
      }
    }
    this.#got[stream] += BigInt(payload.length)
    link.progress = true
    link.ack(this.#got, false)
  }
}

class Lost extends Error {
  constructor (cause, progress) {
    super('the link was lost', { cause })
    this.progress = progress
  }
}

// One stream of an operation.
class Link {
  #acked = 0n
  #ackedAt = Date.now()
  #gone
  began = false
  progress = false

  constructor (stream) {
    this.stream = stream
    this.ended = new Promise((resolve) => { this.#gone = resolve })
  }

  over () { this.#gone('over') }

  send (name, value) {
    this.writable = this.stream.send(frame(name, value))
    if (name !== 'data' && name !== 'exit-ack' && name !== 'start' && name !== 'attach' && Math.random() < 0.1) this.grease()
  }

  grease () { this.stream.send(grease()) }

  /** Acknowledges what was taken: every 128 KiB, at a tick when more came, or after 3 s of nothing (FLOW-2, FLOW-6). */
  ack (got, tick) {
    const sum = got[1] + got[2]
    const due = tick ? sum > this.#acked || Date.now() - this.#ackedAt >= 3000 : sum - this.#acked >= 131072n
    if (!due || this.stream.status !== 'open') return
    this.#acked = sum
    this.#ackedAt = Date.now()
    this.send('ack', { stdout: got[1], stderr: got[2] })
  }
}

// The input of an operation: what the gateway has not acknowledged is kept for the next link.
class Input {
  #source
  #reading
  #kept = [] // pieces that are not acknowledged whole
  #from = 0n // offset of the first of them
  #read = 0n
  #acked = 0n
  #counted = 0n // bytes that were acknowledged since the window grew
  #window = 1n << 20n
  #ended = false
  #stopped = false
  #changed

  constructor (source) {
    this.#source = source[Symbol.asyncIterator]()
    this.#wake()
  }

  #wake () {
    const wake = this.#changed
    this.changes = new Promise((resolve) => { this.#changed = resolve })
    wake?.()
  }

  acked (n) {
    if (n > this.#read || n < this.#acked) throw new Violation('FLOW-4')
    this.#counted += n - this.#acked
    this.#acked = n
    while (this.#kept.length > 0 && this.#from + BigInt(this.#kept[0].length) <= n) this.#from += BigInt(this.#kept.shift().length)
    if (this.#counted >= this.#window) { // FLOW-3
      this.#counted = 0n
      this.#window = this.#window >= 8n << 20n ? this.#window : 2n * this.#window
    }
    this.#wake()
  }

  stop () {
    this.#stopped = true
    this.#kept = []
    this.#wake()
  }

  begin (link, at) {
    link.began = true
    if (at > this.#read || at < this.#acked) throw new Violation('DATA-3')
    this.#pump(link, at).catch((err) => link.stream.abort(err))
  }

  async #pump (link, at) {
    for (;;) {
      if (this.#stopped || link.stream.status !== 'open') return
      if (at < this.#read && at < this.#acked + this.#window) {
        const payload = this.#piece(at)
        link.send('data', { stream: 0, offset: at, payload })
        at += BigInt(payload.length)
        if (!link.writable && await Promise.race([link.stream.onDrain(), link.ended]) === 'over') return
      } else if (at === this.#read && this.#ended) {
        link.send('stdin-end', { total: at })
        return
      } else {
        if (!this.#ended && this.#read - this.#acked < this.#window) this.#reading ??= this.#fill()
        if (await Promise.race([this.#reading ?? this.changes, this.changes, link.ended]) === 'over') return
      }
    }
  }

  async #fill () {
    const { value, done } = await this.#source.next()
    this.#reading = undefined
    if (done) this.#ended = true
    else if (value.length > 0 && !this.#stopped) {
      this.#kept.push(value)
      this.#read += BigInt(value.length)
    }
  }

  #piece (at) {
    let from = this.#from
    for (const piece of this.#kept) {
      const next = from + BigInt(piece.length)
      if (at < next) {
        const room = this.#acked + this.#window - at
        const start = Number(at - from)
        const most = room < 65480n ? Number(room) : 65480
        return piece.subarray(start, Math.min(piece.length, start + most))
      }
      from = next
    }
    throw new Error('a piece that was acknowledged is asked for')
  }
}
