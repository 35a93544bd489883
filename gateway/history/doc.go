// Package history shows an owner the operations that a gateway had lately, whose
// record is in the ledger.
//
//	Last    reads the newest operations out of the records
//	Recent  remembers the last ones, so that a question costs no reading of the
//	        whole ledger: that happens once, at the first question
//
// It decides nothing. What runs is not here but in the gateway itself.
package history
