// Package download keeps the archives that Connectors brought from elsewhere: for each
// Connector the one that its current release was made of, and one candidate for the
// next. It knows no network: whoever fills a slot hands bytes in, and every byte is
// checked against the size and the digest that a release pins.
//
//	Cache.Prepare   the pinned archive: the current one, the candidate, or filled now
//	Cache.Promote   the candidate becomes the current one
//	Cache.Drop      a Connector that is gone needs none
//
// Layout, below the cache's directory:
//
//	KEY/current/{archive,receipt.json}     what the current release was made of
//	KEY/candidate/{archive,receipt.json}   what the next one is made of
//	KEY/.filling/, KEY/.retired/           steps in between; they are cleaned up
//
// A promotion renames current to .retired and candidate to current. Whoever comes after
// a crash finds one of four states, each of which says what was meant, and goes on from
// there: there is always a verified archive, and never more than two. A receipt is a
// local record, not a proof: what it says is compared with what is hashed.
//
// The caller holds the lock of the Connector; archives of others go on meanwhile.
package download
