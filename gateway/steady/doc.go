// Package steady is a wall clock that nobody can set back, so that no lease that
// has expired lives again: what it says never lies before what it said, nor
// before a time that its maker knows of, and goes on at least as fast as the
// machine's own time, which counts suspends where the system can.
//
// A wall clock that was set forward by mistake is believed: what was said stays
// said, until the right time has caught up.
package steady
