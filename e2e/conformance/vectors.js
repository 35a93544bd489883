// Checks this client's reading and writing against the vectors and transcripts of the
// protocol. Usage: node vectors.js ROOT
import { readFileSync, readdirSync } from 'node:fs'
import { join as path } from 'node:path'
import { Violation, encode, frame, delimited, parse, readCodes } from './codec.js'
import { Lengths, Receiver, bounds } from './stream.js'

const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i])

function bytesOf (words) {
  return Uint8Array.from(words.split(/\s+/).filter(Boolean).flatMap((word) => {
    const [hex, times] = word.split('*')
    const bytes = hex.match(/../g).map((h) => parseInt(h, 16))
    return times ? Array(Number(times)).fill(bytes[0]) : bytes
  }))
}

const types = {
  'control-request': ['ControlRequest', bounds.request],
  'control-reply': ['ControlReply', bounds.answer],
  'catalog-request': ['CatalogRequest', bounds.request],
  catalog: ['CatalogFrame', bounds.catalog]
}

function readRun (sender, bytes, seen, again) {
  const receiver = new Receiver(sender)
  receiver.append(bytes)
  for (let f; (f = receiver.next());) {
    seen.push(f.name)
    again.push(frame(f.name, f.value))
  }
  if (!receiver.empty) throw new Error('bytes are left')
}

function readMessages (kind, bytes, again) {
  const [type, bound] = types[kind]
  const lengths = new Lengths()
  lengths.append(bytes)
  let entries = 0
  for (let body; (body = lengths.next(bound));) {
    const value = parse(type, body)
    again.push(delimited(encode(type, value)))
    if (value.entry) entries++
    if ((value.end && value.end.entries !== entries) || (kind === 'catalog' && value.refused && entries > 0)) throw new Violation('CATALOG-2')
  }
  if (!lengths.empty) throw new Error('bytes are left')
}

export function checkVectors (root) {
  readCodes(readFileSync(path(root, 'docs/codes.md'), 'utf8'))
  let count = 0
  const wrong = []
  const dir = path(root, 'protocol/testdata/vectors')
  for (const file of readdirSync(dir).filter((f) => f.endsWith('.txt'))) {
    const [head, ...rest] = readFileSync(path(dir, file), 'utf8').split('\n\n')
    const says = Object.fromEntries(head.split('\n').map((l) => l.split(/: (.*)/)))
    const bytes = bytesOf(rest.join('\n'))
    const seen = []
    const again = []
    let rule = ''
    try {
      if (says.kind === 'run') readRun(says.sender, bytes, seen, again)
      else readMessages(says.kind, bytes, again)
    } catch (err) {
      rule = err instanceof Violation ? err.rule : String(err)
    }
    count++
    if (rule !== (says.rule ?? '') || (says.kind === 'run' && seen.join(' ') !== (says.frames ?? ''))) {
      wrong.push(`${file}: got ${rule || 'ok'} after ${seen.join(' ')}, want ${says.rule ?? 'ok'} after ${says.frames ?? 'none'}`)
    }
    const ignored = file.startsWith('grease')
    if (rule === '' && !ignored && !same(Uint8Array.from(again.flatMap((b) => [...b])), bytes)) wrong.push(`${file}: encodes to other bytes`)
  }
  const sessions = path(root, 'protocol/testdata/transcripts')
  for (const file of readdirSync(sessions).filter((f) => f.endsWith('.txt'))) {
    const sides = { caller: new Receiver('caller'), gateway: new Receiver('gateway') }
    for (const line of readFileSync(path(sessions, file), 'utf8').split('\n')) {
      const [sender, name, hex] = line.split(' ')
      if (!hex) continue
      count++
      const bytes = bytesOf(hex)
      sides[sender].append(bytes)
      const f = sides[sender].next()
      if (f?.name !== name || !same(frame(f.name, f.value), bytes)) wrong.push(`${file}: ${line.slice(0, 60)}`)
    }
  }
  if (wrong.length > 0) throw new Error(`${wrong.length} vectors:\n${wrong.join('\n')}`)
  if (count < 140) throw new Error(`only ${count} vectors were found`)
  return count
}
