//go:build !linux && !darwin

package checkup

import "runtime"

func systemFacts(string) Facts {
	return Facts{System: runtime.GOOS, UID: -1, FreeProblem: "not asked on this system"}
}
