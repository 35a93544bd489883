package strict

// Equal tells whether two values were written alike, but for their places: the same
// kinds, texts and quotes, and the same keys and items in the same order.
func Equal(a, b *Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Text != b.Text || a.Quoted != b.Quoted || len(a.Keys) != len(b.Keys) || len(a.Values) != len(b.Values) {
		return false
	}
	for i := range a.Keys {
		if !Equal(a.Keys[i], b.Keys[i]) {
			return false
		}
	}
	for i := range a.Values {
		if !Equal(a.Values[i], b.Values[i]) {
			return false
		}
	}
	return true
}
