package name

// Each type has the same five functions. They are written out because a
// generic type would let one kind be converted into another.

// ParseConnectorKey checks s; the error is an *InvalidError.
func ParseConnectorKey(s string) (ConnectorKey, error) {
	if err := connectorKeyGrammar.check(s); err != nil {
		return ConnectorKey{}, err
	}
	return ConnectorKey{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (k ConnectorKey) String() string { return k.s }

// IsZero tells whether the value is absent.
func (k ConnectorKey) IsZero() bool { return k.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (k ConnectorKey) MarshalText() ([]byte, error) { return []byte(k.s), nil }

// UnmarshalText is ParseConnectorKey.
func (k *ConnectorKey) UnmarshalText(b []byte) (err error) {
	*k, err = ParseConnectorKey(string(b))
	return err
}

// ParseVersion checks s; the error is an *InvalidError.
func ParseVersion(s string) (Version, error) {
	if err := versionGrammar.check(s); err != nil {
		return Version{}, err
	}
	return Version{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (v Version) String() string { return v.s }

// IsZero tells whether the value is absent.
func (v Version) IsZero() bool { return v.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.s), nil }

// UnmarshalText is ParseVersion.
func (v *Version) UnmarshalText(b []byte) (err error) {
	*v, err = ParseVersion(string(b))
	return err
}

// ParseCommand checks s; the error is an *InvalidError.
func ParseCommand(s string) (Command, error) {
	if err := commandGrammar.check(s); err != nil {
		return Command{}, err
	}
	return Command{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (c Command) String() string { return c.s }

// IsZero tells whether the value is absent.
func (c Command) IsZero() bool { return c.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (c Command) MarshalText() ([]byte, error) { return []byte(c.s), nil }

// UnmarshalText is ParseCommand.
func (c *Command) UnmarshalText(b []byte) (err error) {
	*c, err = ParseCommand(string(b))
	return err
}

// ParseParameter checks s; the error is an *InvalidError.
func ParseParameter(s string) (Parameter, error) {
	if err := parameterGrammar.check(s); err != nil {
		return Parameter{}, err
	}
	return Parameter{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (p Parameter) String() string { return p.s }

// IsZero tells whether the value is absent.
func (p Parameter) IsZero() bool { return p.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (p Parameter) MarshalText() ([]byte, error) { return []byte(p.s), nil }

// UnmarshalText is ParseParameter.
func (p *Parameter) UnmarshalText(b []byte) (err error) {
	*p, err = ParseParameter(string(b))
	return err
}

// ParseOperationID checks s; the error is an *InvalidError.
func ParseOperationID(s string) (OperationID, error) {
	if err := operationIDGrammar.check(s); err != nil {
		return OperationID{}, err
	}
	return OperationID{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (o OperationID) String() string { return o.s }

// IsZero tells whether the value is absent.
func (o OperationID) IsZero() bool { return o.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (o OperationID) MarshalText() ([]byte, error) { return []byte(o.s), nil }

// UnmarshalText is ParseOperationID.
func (o *OperationID) UnmarshalText(b []byte) (err error) {
	*o, err = ParseOperationID(string(b))
	return err
}

// ParseInvocationID checks s; the error is an *InvalidError.
func ParseInvocationID(s string) (InvocationID, error) {
	if err := invocationIDGrammar.check(s); err != nil {
		return InvocationID{}, err
	}
	return InvocationID{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (i InvocationID) String() string { return i.s }

// IsZero tells whether the value is absent.
func (i InvocationID) IsZero() bool { return i.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (i InvocationID) MarshalText() ([]byte, error) { return []byte(i.s), nil }

// UnmarshalText is ParseInvocationID.
func (i *InvocationID) UnmarshalText(b []byte) (err error) {
	*i, err = ParseInvocationID(string(b))
	return err
}

// ParseConnectionID checks s; the error is an *InvalidError.
func ParseConnectionID(s string) (ConnectionID, error) {
	if err := connectionIDGrammar.check(s); err != nil {
		return ConnectionID{}, err
	}
	return ConnectionID{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (c ConnectionID) String() string { return c.s }

// IsZero tells whether the value is absent.
func (c ConnectionID) IsZero() bool { return c.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (c ConnectionID) MarshalText() ([]byte, error) { return []byte(c.s), nil }

// UnmarshalText is ParseConnectionID.
func (c *ConnectionID) UnmarshalText(b []byte) (err error) {
	*c, err = ParseConnectionID(string(b))
	return err
}

// ParseLabel checks s; the error is an *InvalidError.
func ParseLabel(s string) (Label, error) {
	if err := labelGrammar.check(s); err != nil {
		return Label{}, err
	}
	return Label{s}, nil
}

// String returns the value as it was parsed, "" for the zero value.
func (l Label) String() string { return l.s }

// IsZero tells whether the value is absent.
func (l Label) IsZero() bool { return l.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (l Label) MarshalText() ([]byte, error) { return []byte(l.s), nil }

// UnmarshalText is ParseLabel.
func (l *Label) UnmarshalText(b []byte) (err error) {
	*l, err = ParseLabel(string(b))
	return err
}
