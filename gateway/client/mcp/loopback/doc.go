// Package loopback serves HTTP to programs of the same machine: on a loopback address
// alone, and to nobody without a bearer.
//
// Any user of the machine, and any page in a browser on it, can reach such an address.
// So a request needs a bearer, which is compared in constant time and is of one scope; and
// its Host and Origin must be the endpoint's own, which keeps out pages whose name was made
// to lead here. Connections and headers are bounded before anything of them is believed.
package loopback
