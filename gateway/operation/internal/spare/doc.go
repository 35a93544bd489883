// Package spare keeps buffers for one data frame each, and reads into one when there is
// something to read, so that who is silent holds none.
package spare
