// Package cgroup bounds and ends operations with a delegated cgroup (version 2),
// where the owner has one: one cgroup below it for each operation.
//
// It adds to what supervisors do and replaces none of it: a fork or an allocation
// beyond a bound fails inside the command, and whatever is in the group is killed
// by the kernel at once, even after gateway and supervisor were killed together
// (then by the next gateway that opens the same directory). Nothing else depends
// on it.
//
// The directory is one gateway's: Open locks it. cgroupfs is used as what it looks
// like, a tree of small files, and a directory of plain files does as well.
package cgroup
