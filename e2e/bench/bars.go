//go:build linux

package main

import "fmt"

// Bar is what a ratio has to reach.
type Bar struct {
	What        string
	Group       string
	Unit        string
	Of, By      string // cases of the group; without By the figure itself is meant
	Bar, Beyond float64
	AtLeast     bool // else at most
}

// bars are the goals that this suite can tell about.
func bars() []Bar {
	noise, tls, quic := transports()[0], transports()[1], transports()[2]
	out := []Bar{
		{"start to exit, warm, p50", groupStart, p50, bySDK(noise), byLocal, 2.0, 1.6, false},
		{"start to exit, warm, p99", groupStart, p99, bySDK(noise), byLocal, 2.6, 1.8, false},
		{"start to exit, warm, p50", groupStart, p50, bySDK(tls), byLocal, 2.0, 1.6, false},
		{"start to exit, warm, p50", groupStart, p50, bySDK(quic), byLocal, 2.2, 1.8, false},
		{"start to exit, warm, p50", groupStart, p50, bySDK(noise), bySSHGo, 0.5, 0.4, false},
		{"whole process, warm", groupProcess, p50, byShim, bySSHMux, 0.5, 0.35, false},
		{"whole process, cold", groupProcess, p50, byLend("TCP"), bySSHC25, 0.2, 0.12, false},
		{"whole process, cold", groupProcess, p50, byLend("QUIC"), bySSHC25, 0.2, 0.12, false},
		{"standard output", groupOutput, mibs, bySDK(noise), byRaw(noise), 0.62, 0.75, true},
		{"standard output", groupOutput, mibs, bySDK(tls), byRaw(tls), 0.67, 0.8, true},
		{"standard output", groupOutput, mibs, bySDK(quic), byRaw(quic), 0.75, 0.85, true},
		{"standard input", groupInput, mibs, bySDK(noise), byRaw(noise), 0.75, 0.9, true},
		{"standard input", groupInput, mibs, bySDK(tls), byRaw(tls), 0.78, 0.9, true},
		{"standard input", groupInput, mibs, bySDK(quic), byRaw(quic), 0.88, 0.9, true},
		{"standard output", groupOutput, mibs, bySDK(noise), bySSHGo, 1.3, 1.6, true},
		{"standard input", groupInput, mibs, bySDK(noise), bySSHGo, 1.0, 1.3, true},
		{"echo of a line", groupEcho, p50, bySDK(noise), byRaw(noise), 1.6, 1.6, false},
		{"echo of a line", groupEcho, p50, bySDK(noise), bySSHGo, 1.15, 1.15, false},
		{"an idle connection", groupCrowd, perConnection, bySDK(noise), byLean, 1.3, 1.1, false},
		{"a live silent operation, KiB", groupCrowd, perOperation, bySDK(noise), "", 32, 32, false},
		{"a supervisor, KiB of PSS", groupCrowd, perSupervisor, bySDK(noise), "", 3072, 3072, false},
		{"start among 1 000 idle connections and 500 live operations, ÷ alone", groupCrowd, crowdedStart, bySDK(noise), "", 1.2, 1.1, false},
		{"start beside a bulk output", groupBeside, p50, bySDK(noise), bySSHGo, 0.5, 0.35, false},
		{"start on a link of 100 ms, warm", groupFar, roundTrips, warmStart + ", " + noise, "", 1.1, 1.1, false},
		{"start on a link of 100 ms, warm", groupFar, roundTrips, warmStart + ", " + quic, "", 1.1, 1.1, false},
		{"start on a link of 100 ms, new connection", groupFar, roundTrips, coldStart + ", " + noise, "", 4.2, 4.2, false},
		{"start on a link of 100 ms, new connection", groupFar, roundTrips, coldStart + ", " + quic, "", 2.2, 2.2, false},
		{"start of an unchanged npm Connector", groupNpm, p50, bySDK(noise), byNode, 1.1, 1.05, false},
		{"1 MiB of output on a link of 20 ms", groupNear, roundTrips, mebibyte + ", " + noise, "", 2.3, 1.2, false},
	}
	for _, n := range concurrencies() {
		goal := map[int][2]float64{8: {0.55, 0.75}, 64: {0.6, 0.8}, 256: {0.6, 0.85}}[n]
		out = append(out, Bar{fmt.Sprintf("operations a second, %d at once", n), groupAtOnce(n), perSec, bySDK(noise), byLocal, goal[0], goal[1], true})
	}
	return out
}

// Verdicts.
const (
	missed  = "missed"
	reached = "reached"
	beyond  = "beyond"
)

func (b Bar) verdict(v float64) string {
	better := func(goal float64) bool { return b.AtLeast && v >= goal || !b.AtLeast && v <= goal }
	switch {
	case better(b.Beyond):
		return beyond
	case better(b.Bar):
		return reached
	}
	return missed
}
