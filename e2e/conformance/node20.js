// js-libp2p uses this function, which Node has from version 22 on.
Promise.withResolvers ??= function () {
  const out = {}
  out.promise = new this((resolve, reject) => Object.assign(out, { resolve, reject }))
  return out
}
