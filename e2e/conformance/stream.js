// One direction of a stream, as its receiver sees it: lengths, order and counts
// (docs/protocol.md §5, §6, §9).
import { Violation, join, parseFrame, readVarint } from './codec.js'

/** Bounds of a body in bytes, docs/protocol.md §5. */
export const bounds = { first: 327680, data: 65501, answer: 16384, request: 32768, catalog: 98304 }

/** Cuts bytes that come in pieces into bodies. It keeps what has arrived and no more. */
export class Lengths {
  #bytes = new Uint8Array()

  append (piece) { this.#bytes = join(this.#bytes, piece) }

  get empty () { return this.#bytes.length === 0 }

  /** The next body, or undefined as long as it is not whole. */
  next (bound) {
    const end = this.#bytes.findIndex((b) => b < 0x80)
    if (end > 2 || (end < 0 && this.#bytes.length > 2)) throw new Violation('FRAME-2', 'length')
    if (end < 0) return undefined
    const size = readVarint(this.#bytes, 0)
    if (!size || size.value === 0n) throw new Violation('FRAME-1', 'length')
    if (size.value > BigInt(bound)) throw new Violation('FRAME-2', 'length')
    const next = size.next + Number(size.value)
    if (this.#bytes.length < next) return undefined
    const body = this.#bytes.subarray(size.next, next)
    this.#bytes = this.#bytes.subarray(next)
    return body
  }
}

// Who may send what in which state, and what comes then.
const states = {
  caller: {
    init: { start: (v) => v.stdin ? 'input' : 'no-input', attach: (v) => v.token.length > 0 ? 'input' : 'no-input' },
    input: { data: 'input', ack: 'input', 'output-closed': 'input', 'stdin-end': 'no-input', 'exit-ack': 'done' },
    'no-input': { ack: 'no-input', 'output-closed': 'no-input', 'exit-ack': 'done' },
    done: {}
  },
  gateway: {
    init: { accepted: 'output', refused: 'done' },
    output: { data: 'output', ack: 'output', 'stdin-closed': 'output-only', exit: 'done' },
    'output-only': { data: 'output-only', exit: 'done' },
    done: {}
  }
}

/** The frames of a run stream that one role sends. */
export class Receiver {
  #lengths = new Lengths()
  #sender
  #state = 'init'
  #ignored = 0
  #offsets = [0n, 0n, 0n]
  #acked = [0n, 0n, 0n]
  #anyOffset = false

  constructor (sender) { this.#sender = sender }

  append (piece) { this.#lengths.append(piece) }

  get empty () { return this.#lengths.empty }

  /** The next frame, or undefined if none is whole. */
  next () {
    for (;;) {
      const first = this.#state === 'init'
      const body = this.#lengths.next(!first ? bounds.data : this.#sender === 'caller' ? bounds.first : bounds.answer)
      if (!body) return undefined
      const frame = parseFrame(body)
      if (!frame) {
        if (this.#state === 'done' || (first && this.#sender === 'caller') || ++this.#ignored > 16) throw new Violation('GREASE-2')
        continue
      }
      this.#ignored = 0
      const { name, value } = frame
      if (name === 'data' && (value.stream === 0) !== (this.#sender === 'caller')) throw new Violation('DATA-4')
      const next = states[this.#sender][this.#state][name]
      if (!next) throw new Violation('STATE-1', `${name} in ${this.#state}`)
      this.#state = typeof next === 'function' ? next(value) : next
      this.#count(name, value)
      return frame
    }
  }

  #count (name, v) {
    switch (name) {
      case 'attach':
        this.#acked = [0n, v.stdout, v.stderr]
        this.#anyOffset = true // where the input continues is said by the other side
        break
      case 'accepted':
        this.#offsets = [0n, v.stdout, v.stderr]
        break
      case 'data':
        if (this.#anyOffset) this.#offsets[0] = v.offset
        this.#anyOffset = false
        if (v.offset !== this.#offsets[v.stream]) throw new Violation('DATA-3')
        this.#offsets[v.stream] += BigInt(v.payload.length)
        break
      case 'stdin-end':
        if (!this.#anyOffset && v.total !== this.#offsets[0]) throw new Violation('STDIN-2')
        break
      case 'ack': {
        const now = [v.stdin, v.stdout, v.stderr]
        if (this.#sender === 'caller' ? v.stdin !== 0n : (v.stdout | v.stderr) !== 0n) throw new Violation('FLOW-1')
        if (now.some((n, i) => n < this.#acked[i])) throw new Violation('FLOW-4')
        this.#acked = now
        break
      }
      case 'exit':
        if (v.stdout < this.#offsets[1] || v.stderr < this.#offsets[2]) throw new Violation('END-2')
    }
  }
}
