package preset

import "github.com/lendcli/lend/policy/strict"

// headShape says what a preset's file has to begin with.
func headShape() *strict.Shape {
	lines := &strict.Shape{List: &strict.Elements{Item: aLine(), Min: 1, Max: 32}}
	return &strict.Shape{Name: "preset", Fields: []strict.Field{
		{Key: "preset", Required: true, Shape: &strict.Shape{Int: &strict.Range{Min: 1, Max: 1}}},
		{Key: "name", Required: true, Shape: aWord()},
		{Key: "cli", Required: true, Shape: aWord()},
		{Key: "connector", Required: true, Shape: aWord()},
		{Key: "versions", Required: true, Shape: &strict.Shape{List: &strict.Elements{Min: 1, Max: 16, Unique: true, Item: &strict.Shape{
			Text: strict.NewText(strict.Text{What: "a version", Pattern: `^[0-9][0-9A-Za-z.+-]*$`, Max: 64, Quoted: true}),
		}}}},
		{Key: "summary", Required: true, Shape: aLine()},
		{Key: "gives", Required: true, Shape: lines},
		{Key: "leaves_out", Required: true, Shape: lines},
		{Key: "setup", Required: true, Shape: lines},
		{Key: "placeholders", Required: true, Shape: &strict.Shape{Map: &strict.Entries{
			Key: strict.NewText(strict.Text{What: "a word", Pattern: `^[a-z]+$`, Max: 16}), Min: 1,
			Value: &strict.Shape{Fields: []strict.Field{
				{Key: "what", Required: true, Shape: aLine()},
				{Key: "example", Required: true, Shape: aLine()},
				{Key: "pattern", Required: true, Shape: aLine()},
				{Key: "default", Shape: aLine()},
				{Key: "required", Shape: &strict.Shape{Bool: true}},
				{Key: "list", Shape: &strict.Shape{Bool: true}},
			}},
		}}},
	}}
}

func aWord() *strict.Shape {
	return &strict.Shape{Text: strict.NewText(strict.Text{What: "a word", Pattern: `^[a-z][a-z0-9-]*$`, Max: 32})}
}

func aLine() *strict.Shape {
	return &strict.Shape{Text: strict.NewText(strict.Text{What: "one line of text", Pattern: `^[ -~]+$`, Max: 400})}
}
