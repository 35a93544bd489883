// Package mcp shows lent commands to agents as tools of the Model Context Protocol.
//
//	NewLease, NewSession  lenders: a lease with a client of its own, or a session of the
//	                      broker that runs here
//	New                   makes a Server, which has a tool for each command that is lent
//	Server.Serve          serves one client over a pair of streams (stdio)
//	Server.ServeHTTP      is the handler of clients over HTTP, behind a loopback.Endpoint
//
// A Server is the scope of one invocation: its tools are what the lenders may run now,
// and nothing else. There is no tool that takes a command line. Arguments are one JSON
// object, which goes through the project's one grammar (protocol/argv) to the argument
// vector that the gateway judges again; what it refuses here runs nowhere.
//
// The schemas of tools are made anew from what a catalogue says, and text of others is
// bounded, checked for control characters and passed on as data. A command whose entry
// cannot be read is left out.
//
// A Server watches its lenders: a tool comes and goes with its lease and its place in the
// catalogue, and clients are told (list_changed). When the last lender is over, so is the
// Server (Done): what runs is cancelled, and no client over HTTP is served any more. A call is cancelled
// when its client says so, or leaves.
//
// See docs/mcp.md.
package mcp
