package protocol

// Code is a stable reason code.
type Code uint16
