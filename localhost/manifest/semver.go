package manifest

// Range is a comparator range of versions such as ">=22.0.0 <23.0.0": all of its
// comparators must hold. The zero Range accepts every version.
type Range struct{ text string }

// String returns the range as it was parsed.
func (r Range) String() string { return r.text }
