// Package removal deletes trees that a program made, whatever it did to them:
// links are not followed, directories may be unreadable and nested without end.
package removal
