// Package private checks and reads what only this user may use: directories of
// mode 0700 and files that nobody else can open, neither of them a link.
package private
