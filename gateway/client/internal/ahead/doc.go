// Package ahead holds what has come of an operation's output and was not taken yet, so
// that a reader who stops holds up no other stream of the connection.
package ahead
