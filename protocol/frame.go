package protocol

// FrameType names one kind of frame.
type FrameType uint8
