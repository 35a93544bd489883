// The lease file and the identity of a holder: docs/lease.md §3 and §5.
import { createPrivateKey } from 'node:crypto'
import { privateKeyFromRaw } from '@libp2p/crypto/keys'
import { decode, readVarint } from './codec.js'

/** Reads a lease file: where the gateway may be, the chain, and what a holder needs of it. */
export function readLease (file) {
  const lines = file.trim().split(/\r?\n/)
  if (lines.shift() !== '-----BEGIN LEND LEASE-----' || lines.pop() !== '-----END LEND LEASE-----') throw new Error('no lease file')
  const addresses = []
  while (lines[0]?.startsWith('Address: ')) addresses.push(lines.shift().slice('Address: '.length))
  const chain = lines.join('\n').split('\n\n').map((block) => new Uint8Array(Buffer.from(block, 'base64'))).filter((b) => b.length > 0)
  if (chain.length < 1 || chain.length > 3) throw new Error('no chain of 1 to 3')
  const links = chain.map((envelope) => fields(decode('Envelope', envelope).payload))
  const last = links.at(-1)
  return {
    addresses,
    chain,
    issuer: links[0].issuer,
    invocation: links[0].invocation,
    gateway: last.gateway,
    holder: last.holder,
    notAfter: Math.min(...links.map((l) => l.notAfter))
  }
}

// A holder reads a few fields of the payload; the gateway verifies it all.
function fields (payload) {
  const out = {}
  const names = { 3: 'issuer', 4: 'holder', 5: 'gateway', 6: 'invocation', 11: 'notAfter' }
  for (let at = 0; at < payload.length;) {
    const tag = readVarint(payload, at)
    const v = tag && readVarint(payload, tag.next)
    if (!v) throw new Error('no lease')
    const name = names[tag.value >> 3n]
    at = v.next
    if (tag.value % 8n === 0n) {
      if (name) out[name] = Number(v.value)
      continue
    }
    at += Number(v.value)
    if (name) out[name] = Buffer.from(payload.subarray(v.next, at)).toString()
  }
  return out
}

/** The libp2p key of an Ed25519 private key in a PKCS #8 PEM file, as lend init writes it. */
export function readIdentity (pem) {
  const { d, x } = createPrivateKey(pem).export({ format: 'jwk' })
  return privateKeyFromRaw(Buffer.concat([Buffer.from(d, 'base64url'), Buffer.from(x, 'base64url')]))
}
