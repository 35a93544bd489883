package localhost

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// fixture is what an installed copy of this test binary does.
func fixture(args []string) int {
	time.AfterFunc(60*time.Second, func() { os.Exit(99) }) // whatever happens
	switch args[0] {
	case "show":
		dir, err := os.Getwd()
		env := os.Environ()
		slices.Sort(env)
		fmt.Printf("dir=%s %v\nargs=%q\n%s\n", dir, err, args[1:], strings.Join(env, "\n"))
	case "copy":
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 2
		}
		return 7
	case "write":
		if err := os.WriteFile(args[1], []byte("x"), 0o600); err != nil {
			return 2
		}
	case "read":
		b, err := os.ReadFile(args[1])
		if err != nil {
			return 2
		}
		fmt.Print(string(b))
	case "host":
		return hostProcess(args[1])
	case "sleep":
		fmt.Println(os.Getpid())
		select {}
	}
	return 0
}
