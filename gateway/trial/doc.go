// Package trial is the caller's side of one run stream that does not leave the
// process: a gateway's owner tries what a peer would get. It has no link to lose, so
// it neither resumes nor attaches; who runs commands elsewhere uses gateway/client.
package trial
