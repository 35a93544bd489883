package audit

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/lendcli/lend/gateway/ledger"
)

// Noted is what the gateway puts beside the record of a start. A reader leaves out
// what it does not know. Purpose is quoted already; Arguments and Variables, as they
// are, only where the policy says record_arguments.
type Noted struct {
	Rule      string            `json:"rule"`
	Policy    string            `json:"policy"`
	Workspace string            `json:"workspace"`
	Purpose   string            `json:"purpose"`
	Links     string            `json:"links,omitempty"` // of a lease that was passed on
	Arguments []string          `json:"arguments,omitempty"`
	Variables map[string]string `json:"variables,omitempty"`
}

// Bounds of what is recorded of a call, in bytes: of one text before it is escaped,
// and of all as JSON.
const (
	maxText = 1 << 10
	maxCall = 64 << 10
)

// Encode returns n as the ledger keeps it, arguments and variables escaped and
// bounded: what is cut says how much is missing.
func (n Noted) Encode() ([]byte, error) {
	room := maxCall
	take := func(s string) bool {
		b, err := json.Marshal(s)
		if room -= len(b) + 1; err != nil || room < 0 {
			room = 0
			return false
		}
		return true
	}
	arguments := n.Arguments
	n.Arguments = nil
	for i, a := range arguments {
		if a = recorded(a); !take(a) {
			n.Arguments = append(n.Arguments, "... ("+counted(uint64(len(arguments)-i), "argument")+" more)")
			break
		}
		n.Arguments = append(n.Arguments, a)
	}
	variables := n.Variables
	n.Variables = nil
	for k, v := range variables {
		if v = recorded(v); take(k) && take(v) {
			if n.Variables == nil {
				n.Variables = map[string]string{}
			}
			n.Variables[k] = v
		}
	}
	b, err := json.Marshal(n)
	switch {
	case err != nil:
		return nil, fmt.Errorf("encode audit detail: %w", err)
	case len(b) > ledger.MaxAudit:
		return nil, fmt.Errorf("encode audit detail: more than %d bytes", ledger.MaxAudit)
	}
	return b, nil
}

// recorded escapes a text of a caller so that it can be read back: what is printable
// ASCII stays, unless it begins as an escaped one does.
func recorded(s string) string {
	more := ""
	if len(s) > maxText {
		more = "... (" + counted(uint64(len(s)-maxText), "byte") + " more)"
		s = s[:maxText]
	}
	if strings.HasPrefix(s, `"`) {
		return strconv.QuoteToASCII(s) + more
	}
	return escaped(s) + more
}
