package argv

import "time"

// The bounds of a rendered Call, counted after rendering and with the fixed
// arguments. They are those of design and docs/policy.md; an owner's policy may
// lower them.
const (
	// MaxArguments bounds the arguments.
	MaxArguments = 256
	// MaxArgument bounds one argument, in bytes: Linux takes 128 KiB with its NUL.
	MaxArgument = 128<<10 - 1
	// MaxTotal bounds the arguments together, in bytes, each counted with the NUL
	// that ends it.
	MaxTotal = 256 << 10
	// MaxObject bounds the JSON object of Grammar.FromObject, in bytes.
	MaxObject = 512 << 10
)

// The bounds of a declaration. What exceeds them is a mistake or an attack on
// whoever reads it; none of them is reached by the CLIs of the corpus.
const (
	maxCommands    = 256
	maxParameters  = 64
	maxFixed       = 64 // fixed arguments
	maxFixedBytes  = 4 << 10
	maxVariables   = 64
	maxAliases     = 8
	maxEnum        = 256
	maxEnumBytes   = 1 << 10
	maxPattern     = 1 << 10
	maxDescription = 1 << 10
	maxFlag        = 64
	maxVariable    = 128
	maxItems       = 256
	maxLength      = MaxArgument // of min_length and max_length
	maxPath        = 4 << 10
	maxTimeout     = 24 * time.Hour
	maxStdin       = 1 << 40
	defaultStdin   = 1 << 20

	// A caller may spell a flag as two arguments that become one, and end the
	// options where the rendering does not.
	maxSaid      = 2*MaxArguments + 1
	maxSaidBytes = 2 * MaxTotal
)
