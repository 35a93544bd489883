// Package notice tells who waits that something has changed: nothing is missed between
// two looks, and nobody is waited for.
package notice
