// Package lendtest is a gateway for the tests of products that call one: the real
// admission, ledger, protocol, policy and client, over a network in memory. It opens no
// socket and no port, and works beside others in parallel tests.
//
//	g := lendtest.New(t, lendtest.Connector{
//		Key: "github",
//		Commands: []lendtest.Command{{
//			Name: "issue.list",
//			Run:  func(c *lendtest.Call) int { fmt.Fprintln(c.Stdout, "#1"); return 0 },
//		}},
//	})
//	out, err := g.Client.Command(ctx, "github", "issue.list").Output()
//
// Commands are Go functions, unless Config.Runtime is a real Connector host
// (localhost.Host) or one of the product's own. A lease that was revoked, a policy that
// changed, an argument that is not allowed and a link that is lost are what they are on
// a real gateway: only the wires and, with functions, the processes are not real.
//
// Every goroutine of a Gateway has ended when Close returns.
package lendtest
