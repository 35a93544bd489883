// Package revision counts the changes of something that others watch. Whoever waits
// names the revision that it has seen and finds the newest state: nobody is queued
// for, a slow watcher costs nothing, and no change is lost, only passed over.
package revision
