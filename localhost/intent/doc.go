// Package intent keeps what the owner wants of one Connector as a whole, on disk,
// before anything is done about it: that it is disabled, or that it is being
// removed. So a process that dies half way leaves word of what was to be done.
//
//	ROOT/connectors/KEY/.intent.json   strict, 0600; absent: nothing but the usual
//	                   /.intent.lock   held while the file is replaced
//	                   /.intent.json.swap  a directory that was in its place, until it is gone
//	                   /.removal.lock  held by whoever removes the Connector
//
// None of these names is that of a connection. What cannot be read is an error, and
// whoever asks must take it for "not wanted".
package intent
