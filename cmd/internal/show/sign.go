package show

// Sign colours text by the sign of a change that it stands for: + made, ~ changed, - removed, -/+
// made anew, ! refused, o left in place. Any other sign leaves it as it is.
func (s Screen) Sign(sign, text string) string {
	colours := map[string]string{"+": "32", "~": "33", "-": "31", "-/+": "31", "!": "31", "o": "36"}
	colour, known := colours[sign]
	if !s.Colour || !known {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
