package door

import "time"

// paceSpan is for how many seconds a start counts: a minute, and what is left of the
// second in which it was.
const paceSpan = 61

// pace counts the starts of one peer in the last minute, by seconds: in no minute are
// there more than the limit. Its zero value has none.
type pace struct {
	counts [paceSpan]uint32 // by second, modulo paceSpan
	sum    int
	base   time.Time // when second 0 began
	last   int64     // the second that was counted last
}

// second forgets what does not count any more, and returns the second of now.
func (p *pace) second(now time.Time) int64 {
	if p.base.IsZero() {
		p.base = now
	}
	s := max(p.last, int64(now.Sub(p.base)/time.Second)) // a clock that was set back stands still
	for gone := p.last + 1; gone <= min(s, p.last+paceSpan); gone++ {
		at := &p.counts[gone%paceSpan]
		p.sum -= int(*at)
		*at = 0
	}
	p.last = s
	return s
}

// take takes one start if fewer than limit count, or returns after which time one can
// be taken.
func (p *pace) take(now time.Time, limit int) time.Duration {
	s := p.second(now)
	if p.sum < limit {
		p.counts[s%paceSpan]++
		p.sum++
		return 0
	}
	over := p.sum - limit + 1
	for first := max(0, s-paceSpan+1); first <= s; first++ {
		if over -= int(p.counts[first%paceSpan]); over <= 0 {
			return roundUp(p.base.Add(time.Duration(first+paceSpan) * time.Second).Sub(now))
		}
	}
	return time.Minute // there is no limit at all
}

// idle tells that no start counts.
func (p *pace) idle(now time.Time) bool {
	p.second(now)
	return p.sum == 0
}
