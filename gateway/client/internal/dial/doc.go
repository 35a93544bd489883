// Package dial opens streams to gateways: it connects, closes links that are dead,
// and knows whether anything can have been sent when one is lost.
package dial
