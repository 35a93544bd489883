package strict

// Suggest returns the candidate that is most like s, or "" if none is close
// enough to be meant.
func Suggest(s string, candidates []string) string {
	best, limit := "", min(3, (len(s)+1)/3)
	if len(s) > 64 {
		return ""
	}
	for _, c := range candidates {
		if len(c) > 64 {
			continue
		}
		if d := distance(s, c); d <= limit && c != s {
			best, limit = c, d-1
		}
	}
	return best
}

// distance counts the edits from a to b: insert, delete, replace, and swap of
// neighbours.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// Meant returns `did you mean "…"?` for the closest candidate, or "".
func Meant(s string, candidates []string) string {
	if c := Suggest(s, candidates); c != "" {
		return `did you mean "` + c + `"?`
	}
	return ""
}
