"""The files of the formats that sources read: their rows, members, trees and annotations, parsed."""
