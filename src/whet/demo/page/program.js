// What the page knows of the network; `whet demo web` fills it in.
export const PROGRAM = @program@;
