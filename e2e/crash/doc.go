// Package crash kills what runs, again and again, and looks at what is left: real
// programs, one fixture that writes down each of its starts, and a checker of
// histories. LEND_TEST_LONG=1 runs the full numbers, LEND_TEST_SEED=N one plan again.
package crash
