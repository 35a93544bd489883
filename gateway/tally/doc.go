// Package tally sums up refusals, so that a flood of them costs one record per kind
// and interval, and the counts are exact.
package tally
