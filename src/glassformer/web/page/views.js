// The views of the page, in the order of their tabs: {id, title, draw(place, page)}.

import { mapView } from "./map.js";
import { trainingView } from "./training.js";
import { writingView } from "./writing.js";

export const VIEWS = [mapView, trainingView, writingView];
