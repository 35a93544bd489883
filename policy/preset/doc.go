// Package preset holds policies to start from for well-known CLIs: read-only
// commands, pinned to the resources that the owner names, without what runs other
// programs or prints credentials.
//
//	All, Find      the presets
//	Preset.Render  peers and resources → a Fragment: the text of a policy file
//
// A preset is one YAML file of this directory: what it is, the placeholders with
// their grammars, and a fragment of a policy in which they stand. The values of an
// owner are checked by those grammars before they stand in the text, so none can be
// anything but a value there. What a preset gives and what it refuses is tested with
// a corpus of calls and tricks through policy.Decide, as those of a peer.
//
// The package is pure, and its values are immutable. See docs/presets.md.
package preset
