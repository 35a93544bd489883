package main

import (
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/protocol/name"
)

// argument is one of a command's, as its usage line names it.
type argument struct {
	name           string
	optional, many bool
}

// argumentsOf reads the arguments out of a usage line: "lend connector try --peer PEER
// KEY COMMAND [ARGUMENTS…]" has KEY, COMMAND and, perhaps, ARGUMENTS.
func argumentsOf(use string) (out []argument) {
	words := strings.Fields(use)[1:]
	depth, flag := 0, false // open brackets, and whether they are a flag's
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			continue
		case depth == 0 && strings.HasPrefix(w, "--"):
			i++ // its value
			continue
		case w == "|": // the same argument, otherwise
			out[len(out)-1].name += " or " + words[i+1]
			i++
			continue
		}
		if depth == 0 {
			flag = strings.HasPrefix(w, "[--") || w == "[flags]"
		}
		optional := depth > 0 || strings.HasPrefix(w, "[")
		depth += strings.Count(w, "[") - strings.Count(w, "]")
		if !flag {
			plain := strings.Trim(w, "[]")
			out = append(out, argument{strings.TrimSuffix(plain, "…"), optional, strings.HasSuffix(plain, "…")})
		}
	}
	return out
}

// bounds are how many arguments there may be.
func bounds(all []argument) (least, most int) {
	for _, a := range all {
		if !a.optional {
			least++
		}
		if most++; a.many {
			return least, math.MaxInt
		}
	}
	return least, most
}

// argumentsError says which argument is missing, or is one too many.
func argumentsError(c *cobra.Command, args []string) error {
	usage := strings.TrimSpace(strings.TrimSuffix(c.Parent().CommandPath()+" "+c.Use, " [flags]"))
	all := argumentsOf(c.Use)
	least, most := bounds(all)
	if len(args) > most {
		return usagef(usage, "unexpected argument %s", name.Quote(args[most]))
	}
	var missing []string
	for _, a := range all {
		if !a.optional {
			missing = append(missing, a.name)
		}
	}
	missing = missing[min(len(args), least):]
	switch len(missing) {
	case 0:
		return usagef(usage, "these arguments do not go together")
	case 1:
		return usagef(usage, "%s is missing", missing[0])
	}
	return usagef(usage, "%s and %s are missing", strings.Join(missing[:len(missing)-1], ", "), missing[len(missing)-1])
}
