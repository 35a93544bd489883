// Messages of lend on the wire: the canonical encoding of docs/protocol.md §1, both
// ways, and the rules about single messages. uint64 are BigInts, bytes are Uint8Arrays.

/** A rule of docs/protocol.md is broken; rule is its id. */
export class Violation extends Error {
  constructor (rule, text = 'broken') {
    super(`${rule}: ${text}`)
    this.name = 'Violation'
    this.rule = rule
  }
}

// Of each message: number, name, type, repeated. The files are proto/lend/v1/*.proto.
const chain = (number) => [number, 'lease', 'bytes', true]
const operationKey = [[1, 'issuer', 'string'], [2, 'invocation', 'string'], [3, 'operation', 'string']]
const messages = {
  Start: [[1, 'operation', 'string'], chain(2), [3, 'connector', 'string'], [4, 'version', 'string'], [5, 'command', 'string'],
    [6, 'arguments', 'bytes', true], [7, 'stdin', 'bool']],
  Attach: [...operationKey, [4, 'token', 'bytes'], [5, 'stdout', 'uint64'], [6, 'stderr', 'uint64']],
  StdinEnd: [[1, 'total', 'uint64']],
  Ack: [[1, 'stdin', 'uint64'], [2, 'stdout', 'uint64'], [3, 'stderr', 'uint64']],
  OutputClosed: [[1, 'stream', 'uint32']],
  ExitAck: [],
  Accepted: [[1, 'attached', 'bool'], [2, 'token', 'bytes'], [3, 'stdin', 'uint64'], [4, 'stdout', 'uint64'], [5, 'stderr', 'uint64'],
    [6, 'limits', 'Limits']],
  Limits: [[1, 'stdin', 'uint64'], [2, 'stdout', 'uint64'], [3, 'stderr', 'uint64'], [4, 'runMs', 'uint64'], [5, 'detachedMs', 'uint64']],
  Refused: [[1, 'code', 'uint32'], [2, 'public', 'string'], [3, 'retryAfterMs', 'uint64']],
  StdinClosed: [],
  Exit: [[1, 'code', 'uint32'], [2, 'status', 'uint32'], [3, 'signal', 'string'], [4, 'core', 'bool'], [5, 'forced', 'bool'],
    [6, 'stdin', 'uint64'], [7, 'stdout', 'uint64'], [8, 'stderr', 'uint64'], [9, 'durationUs', 'uint64']],
  ControlRequest: [[1, 'cancel', 'CancelRequest'], [2, 'status', 'StatusRequest'], [3, 'revoke', 'RevokeRequest']],
  ControlReply: [[1, 'cancel', 'CancelReply'], [2, 'status', 'StatusReply'], [3, 'revoke', 'RevokeReply'], [15, 'refused', 'Refused']],
  CancelRequest: [...operationKey, chain(4), [5, 'graceMs', 'uint64']],
  StatusRequest: operationKey,
  RevokeRequest: [[1, 'envelope', 'bytes']],
  CancelReply: [[1, 'state', 'uint32']],
  StatusReply: [[1, 'state', 'uint32'], [2, 'exit', 'Exit']],
  RevokeReply: [[1, 'stopped', 'uint32']],
  CatalogRequest: [chain(1)],
  CatalogFrame: [[1, 'entry', 'CatalogEntry'], [2, 'end', 'CatalogEnd'], [15, 'refused', 'Refused']],
  CatalogEntry: [[1, 'connector', 'string'], [2, 'version', 'string'], [3, 'command', 'string'], [4, 'summary', 'string'], [5, 'effect', 'string'],
    [6, 'inputSchema', 'bytes'], [7, 'stdin', 'bool'], [8, 'limits', 'Limits']],
  CatalogEnd: [[1, 'entries', 'uint32']],
  // A lease (docs/lease.md), as far as a holder has to read it.
  Envelope: [[1, 'publicKey', 'bytes'], [2, 'payloadType', 'bytes'], [3, 'payload', 'bytes'], [5, 'signature', 'bytes']]
}

// The frames of a run stream, by number; Data is written and read by hand.
const frames = { 1: 'start', 2: 'attach', 3: 'data', 4: 'stdin-end', 5: 'ack', 6: 'output-closed', 7: 'exit-ack', 8: 'accepted', 9: 'refused', 10: 'stdin-closed', 11: 'exit' }
const frameNumbers = Object.fromEntries(Object.entries(frames).map(([number, name]) => [name, Number(number)]))
const typeOf = (frame) => frame.split('-').map((w) => w[0].toUpperCase() + w.slice(1)).join('')

const utf8 = new TextEncoder()
const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** The shortest varint of a number or BigInt. */
export function varint (value) {
  const out = []
  for (let v = BigInt(value); ;) {
    const low = Number(v & 0x7fn)
    v >>= 7n
    if (v === 0n) return Uint8Array.from([...out, low])
    out.push(low | 0x80)
  }
}

/** Reads a varint at an offset; undefined if it is not whole, not shortest or too long. */
export function readVarint (bytes, at) {
  let value = 0n
  for (let i = 0; i < 10 && at + i < bytes.length; i++) {
    const b = bytes[at + i]
    value |= BigInt(b & 0x7f) << BigInt(7 * i)
    if (b < 0x80) return (i > 0 && b === 0) || value >= 1n << 64n ? undefined : { value, next: at + i + 1 }
  }
}

export function join (...parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0))
  let at = 0
  for (const p of parts) {
    out.set(p, at)
    at += p.length
  }
  return out
}

const field = (number, body) => join(varint(number * 8 + 2), varint(body.length), body)

/** The canonical encoding of a message. */
export function encode (type, value) {
  const out = []
  for (const [number, name, kind, many] of messages[type]) {
    for (const v of many ? value[name] ?? [] : [value[name]]) {
      if (v === undefined) continue
      if (kind in messages) out.push(field(number, encode(kind, v)))
      else if (kind === 'string' || kind === 'bytes') {
        const body = kind === 'string' ? utf8.encode(v) : v
        if (many || body.length > 0) out.push(field(number, body))
      } else if (BigInt(v) !== 0n) out.push(varint(number * 8), varint(BigInt(v)))
    }
  }
  return join(...out)
}

/** Reads a message; what is not the canonical encoding of one is FRAME-4. */
export function decode (type, bytes) {
  const out = {}
  for (const [, name, kind, many] of messages[type]) {
    if (many) out[name] = []
    else if (kind === 'string') out[name] = ''
    else if (kind === 'bytes') out[name] = new Uint8Array()
    else if (kind === 'bool') out[name] = false
    else if (kind === 'uint32') out[name] = 0
    else if (kind === 'uint64') out[name] = 0n
  }
  const bad = () => new Violation('FRAME-4', `no canonical ${type}`)
  for (let at = 0; at < bytes.length;) {
    const tag = readVarint(bytes, at)
    const known = tag && messages[type].find(([number]) => BigInt(number) === tag.value >> 3n)
    if (!known) throw bad()
    const [, name, kind, many] = known
    const v = readVarint(bytes, tag.next)
    const scalar = kind === 'bool' || kind === 'uint32' || kind === 'uint64'
    if (!v || tag.value % 8n !== (scalar ? 0n : 2n)) throw bad()
    if (scalar) {
      at = v.next
      if (kind !== 'uint64' && v.value >= (kind === 'bool' ? 2n : 1n << 32n)) throw bad()
      out[name] = kind === 'bool' ? v.value === 1n : kind === 'uint32' ? Number(v.value) : v.value
      continue
    }
    at = v.next + Number(v.value)
    if (at > bytes.length) throw bad()
    const body = bytes.subarray(v.next, at)
    let value = body
    if (kind === 'string') {
      try {
        value = text.decode(body)
      } catch {
        throw bad()
      }
    } else if (kind in messages) value = decode(kind, body)
    if (many) out[name].push(value)
    else out[name] = value
  }
  const again = encode(type, out) // twice the same field, another order, a default: all of it shows here
  if (again.length !== bytes.length || again.some((b, i) => b !== bytes[i])) throw bad()
  return out
}

/** A frame of a run stream, with its length in front: `frame('ack', {stdout: 5n})`. */
export function frame (name, value = {}) {
  let body
  if (name === 'data') {
    body = join(value.stream ? join([0x08], varint(value.stream)) : [], value.offset ? join([0x10], varint(value.offset)) : [],
      [0x1a], varint(value.payload.length), value.payload)
  } else body = encode(typeOf(name), value)
  return delimited(field(frameNumbers[name], body))
}

/** A body with its length in front. */
export const delimited = (body) => join(varint(body.length), body)

/** Reads one body of a run stream: its name and value, or undefined for one to ignore. */
export function parseFrame (bytes) {
  const tag = readVarint(bytes, 0)
  const number = tag && tag.value >> 3n
  if (!number || tag.value % 8n === 6n || tag.value % 8n === 7n) throw new Violation('FRAME-4', 'no message')
  const size = readVarint(bytes, tag.next)
  const whole = tag.value % 8n === 2n && size && BigInt(size.next) + size.value === BigInt(bytes.length)
  const name = frames[number]
  if (!name) {
    if (number < 1024n || number > 2047n || !whole || size.value > 16384n) throw new Violation('GREASE-1', `frame ${number}`)
    return undefined
  }
  if (name === 'data') return { name, value: parseData(bytes, size, whole) }
  if (!whole) throw new Violation('FRAME-4', 'not one message')
  if (bytes.length > 16384 && name !== 'start' && name !== 'attach') throw new Violation('FRAME-3')
  const value = decode(typeOf(name), bytes.subarray(size.next))
  rules[name](value)
  return { name, value }
}

function parseData (bytes, size, whole) {
  const bad = new Violation('DATA-1', 'no canonical Data')
  if (!whole) throw bad
  let at = size.next
  const number = (tag) => {
    if (bytes[at] !== tag) return 0n
    const v = readVarint(bytes, at + 1)
    if (!v || v.value === 0n) throw bad
    at = v.next
    return v.value
  }
  const stream = number(0x08)
  const offset = number(0x10)
  const length = bytes[at] === 0x1a && readVarint(bytes, at + 1)
  if (stream > 2n || !length || BigInt(length.next) + length.value !== BigInt(bytes.length)) throw bad
  if (length.value < 1n || length.value > 65480n || offset + length.value >= 1n << 64n) throw new Violation('DATA-2')
  return { stream: Number(stream), offset, payload: bytes.subarray(length.next) }
}

// Names, docs/protocol.md §5.
const names = {
  operation: /^[A-Za-z0-9_-]{16,64}$/,
  connector: /^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$/,
  version: /^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$/,
  command: /^[a-z][a-z0-9._-]{0,127}$/,
  invocation: /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$/,
  issuer: /^12D3KooW[1-9A-HJ-NP-Za-km-z]{44}$/
}

function check (ok, rule, text) {
  if (!ok) throw new Violation(rule, text)
}

function checkNames (value, rule, ...which) {
  for (const w of which) check(names[w].test(value[w]), rule, w)
}

function checkChain (lease, least) {
  check(lease.length >= least && lease.length <= 3 && lease.every((l) => l.length >= 1 && l.length <= 8192), 'START-2')
}

const mostMs = 400n * 24n * 3600n * 1000n

function checkLimits (limits, rule) {
  check(limits !== undefined, rule, 'no limits')
  check(limits.runMs <= mostMs && limits.detachedMs <= mostMs, 'FRAME-5', 'more than 400 days')
}

/** Which codes refuse and which end, from docs/codes.md: {number: {name, refuses, ends}}. */
export const codes = {}
export function readCodes (markdown) {
  for (const m of markdown.matchAll(/^\| (\d+) \| `([A-Z_]+)` \| \S+ \| \S+ \| (\S+) \| (\S+) \|/gm)) {
    codes[m[1]] = { name: m[2], refuses: m[3] !== '–', ends: m[1] === '0' || m[4] !== '–' }
  }
}

const printable = /^[ -~]*$/

// The rules about one message alone.
export const rules = {
  start (v) {
    checkNames(v, 'FRAME-5', 'operation')
    checkChain(v.lease, 1)
    checkNames(v, 'FRAME-5', 'connector', 'version', 'command')
    const sizes = v.arguments.map((a) => a.length)
    check(sizes.length <= 256 && sizes.every((n) => n <= 131071) && sizes.reduce((a, b) => a + b, 0) <= 262144, 'START-3')
  },
  attach (v) {
    checkNames(v, 'FRAME-5', 'issuer', 'invocation', 'operation')
    check(v.token.length === 0 || v.token.length === 16, 'ATTACH-2')
  },
  'stdin-end' () {},
  ack () {},
  'output-closed' (v) { check(v.stream === 1 || v.stream === 2, 'OUTPUT-1') },
  'exit-ack' () {},
  accepted (v) {
    check(v.token.length === 0 || v.token.length === 16, 'ATTACH-2')
    checkLimits(v.limits, 'FRAME-5')
    check(v.attached || (v.stdin | v.stdout | v.stderr) === 0n, 'ACCEPT-2')
  },
  refused (v) {
    check(v.code < 65536, 'FRAME-5', 'code')
    check(v.code !== 0 && (codes[v.code]?.refuses ?? true), 'REFUSE-1')
    check(v.public.length <= 1024 && printable.test(v.public), 'REFUSE-2')
    check(v.retryAfterMs <= mostMs, 'FRAME-5', 'more than 400 days')
  },
  'stdin-closed' () {},
  exit (v) {
    check(v.code < 65536, 'FRAME-5', 'code')
    check(codes[v.code]?.ends ?? true, 'END-1')
    check(v.status <= 255 && (v.signal === '' || (/^SIG[A-Z0-9+-]{1,12}$/.test(v.signal) && v.status === 0)), 'END-1')
    check(!v.core || v.signal !== '', 'END-1')
    check(v.durationUs <= mostMs * 1000n, 'FRAME-5', 'more than 400 days')
  },
  ControlRequest (v) {
    only(v, 'CONTROL-2')
    if (v.cancel) checkChain(v.cancel.lease, 0)
    if (v.cancel ?? v.status) checkNames(v.cancel ?? v.status, 'CONTROL-2', 'issuer', 'invocation', 'operation')
    if (v.revoke) check(v.revoke.envelope.length >= 1 && v.revoke.envelope.length <= 8192, 'CONTROL-4')
  },
  ControlReply (v) {
    only(v, 'CONTROL-2')
    const state = (v.cancel ?? v.status)?.state
    check(state === undefined || (state >= 1 && state <= 4), 'CONTROL-5')
    if (v.status) check((v.status.exit !== undefined) === (state === 3), 'CONTROL-5')
    if (v.status?.exit) rules.exit(v.status.exit)
    if (v.refused) rules.refused(v.refused)
  },
  CatalogRequest (v) { checkChain(v.lease, 1) },
  CatalogFrame (v) {
    only(v, 'CATALOG-2')
    if (v.refused) rules.refused(v.refused)
    if (!v.entry) return
    const e = v.entry
    checkNames(e, 'CATALOG-3', 'connector', 'version', 'command')
    check(utf8.encode(e.summary).length <= 1024 && !/\p{Cc}/u.test(e.summary), 'CATALOG-3')
    check(['', 'read', 'write'].includes(e.effect) && e.inputSchema.length <= 65536, 'CATALOG-3')
    checkLimits(e.limits, 'CATALOG-3')
    try {
      JSON.parse(text.decode(e.inputSchema))
    } catch {
      throw new Violation('CATALOG-3', 'no JSON')
    }
  }
}

function only (value, rule) {
  check(Object.values(value).filter((v) => v !== undefined).length === 1, rule, 'not exactly one')
}

/** Reads and checks a request, a reply or a part of a catalogue. */
export function parse (type, bytes) {
  const value = decode(type, bytes)
  rules[type](value)
  return value
}
